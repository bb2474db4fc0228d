"""The paths of the fixtures, and a function that makes writable copies of runs."""

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
"""Ids of the runs whose driver was alive until they ended."""
LOST, LOST_ELASTIC = "20261123-123619-905b", "20261123-123650-9500"
"""Ids of the runs whose driver was killed. Their folders contain the journals of the workers."""


def copy_runs(target: Path, *runs: str) -> Path:
    """Copy runs into a folder. As in the original runs, the workers' journals are newer than the driver's files."""
    for run in runs:
        folder = target / run
        shutil.copytree(FIXTURES / "runs" / run, folder)
        now = time.time()
        for path in folder.rglob("*"):
            age = 0 if path.parent.name == "records" else 60
            os.utime(path, (now - age, now - age))
    return target
