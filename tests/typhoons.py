"""Runs the notebook that trains and serves a model of typhoon tracks, as a user would in JupyterLab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from tests.clients.kernel import RemoteKernel

NOTEBOOK = ROOT / "notebooks" / "04-from-run-to-service.ipynb"
CELL_SECONDS = 600.0
SMALL = """
TRACKS = None
TRAIN, VALIDATE, TEST = (2005, 2007), (2008, 2008), (2023, 2024)
HIDDEN = 64
EPOCHS = 1
BATCH_SIZE = 256
LEARNING_RATE = 4e-3
SEED = 0
WORKERS = 2
STORMS = 4
"""
BASELINES = ("persistence", "straight on")
VERSIONS = ("first version", "second version")


@dataclass(frozen=True)
class Shown:
    """What the notebook shows: the errors of each row in km after 6 and 24 hours, and the counted answers."""

    errors: dict[str, tuple[float, float]]
    answers: str


def run_notebook(kernel: RemoteKernel, parameters: str) -> Shown:
    """Run the notebook with other parameters."""
    outputs = {}
    for cell in kernel.code_cells():
        source = parameters if "parameters" in cell.tags else cell.source
        outputs[next(iter(cell.tags), source.splitlines()[0])] = kernel.execute(source, deadline=CELL_SECONDS)
    rows = re.findall(r"^([a-z]+ [a-z0-9]+|persistence)\s+([\d.]+)\s+([\d.]+)\s*$", outputs["result"], re.MULTILINE)
    assert "cluster 'main' is stopped" in outputs["%serve stop typhoon"]
    return Shown({name: (float(km_6), float(km_24)) for name, km_6, km_24 in rows}, outputs["answers"])


def assert_served(shown: Shown) -> None:
    """Check that both versions have answered without a failed call while the second replaced the first."""
    assert "failed" not in shown.answers
    first, second = sorted(map(int, re.findall(r"'typhoon:(\d+)': [1-9]", shown.answers)))
    assert second == first + 1
    assert set(shown.errors) == {*BASELINES, *VERSIONS}
