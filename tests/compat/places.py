"""The paths of the fixtures, and writable copies of them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
REPORTS, FAILS, WHOLE, BROKEN = (
    "20261123-123554-126b",
    "20261123-123557-57fa",
    "20261123-123557-fb9d",
    "20261123-123558-bd9b",
)
"""Runs that ended under their driver."""
LOST, LOST_ELASTIC = "20261123-123619-905b", "20261123-123650-9500"
"""Runs whose driver was killed; their folders have the journals of the workers."""


def copy_runs(target: Path, *runs: str) -> Path:
    """Copy runs into a folder; as in the originals, the journals of workers are newer than the files of the driver."""
    for run in runs:
        folder = target / run
        shutil.copytree(FIXTURES / "runs" / run, folder)
        now = time.time()
        for path in folder.rglob("*"):
            age = 0 if path.parent.name == "records" else 60
            os.utime(path, (now - age, now - age))
    return target
