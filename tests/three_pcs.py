"""Runs the notebook on slow networks with small sizes, as a user would in JupyterLab."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT
from tests.notebooks import run_cells

if TYPE_CHECKING:
    from tests.clients.kernel import RemoteKernel

NOTEBOOK = ROOT / "notebooks" / "02-three-pcs.ipynb"
CELL_SECONDS = 300.0
SMALL = """
DATA = {data!r}
IMAGES_PER_CLASS = 20
EPOCHS = 1
BATCH_SIZE = 4
LEARNING_RATE = 0.01
WIDTH = 4
MACHINES = [1, 2]
BACKEND = {backend!r}
"""
MODES = [("1", "step"), ("2", "asynchronous"), ("2", "auto"), ("2", "compressed"), ("2", "local"), ("2", "step")]
"""The rows of the notebook's table: the workers and the mode."""
EXCHANGED = """
print([*runs[2, "auto"].notices])
print({mode: min(one["bytes_per_step"] for one in runs[2, mode].info.sync.values()) for mode in MODES})
"""
"""What `auto` has chosen, and the bytes of each mode. A training as short as a warm-up or a trial would have none."""


def run_notebook(kernel: RemoteKernel, **parameters: str) -> dict[str, str]:
    """Run the notebook, and return the output of each cell by its tag or its first line."""
    outputs = run_cells(kernel, SMALL.format(**parameters), deadline=CELL_SECONDS)
    outputs["exchanged"] = kernel.execute(EXCHANGED, deadline=CELL_SECONDS)
    return outputs


def assert_compared(outputs: dict[str, str]) -> None:
    """Check that ranks have exchanged data in all modes of the notebook, and that it has predicted their speeds."""
    rows = re.findall(r"(\d)\s+(\w+)\s+([\d.]+)\s+([\d.]+)\s+(0\.\d+)", outputs["result"])
    assert [row[:2] for row in rows] == MODES
    notices, traffic = outputs["exchanged"].splitlines()
    assert re.search(r"averaging (after each step|every \d+ steps) in \d+ bits", notices), notices
    assert all(sent > 0 for sent in ast.literal_eval(traffic).values()), traffic
    [check] = [text for line, text in outputs.items() if line.startswith("%cluster check")]
    assert 'sync="step"' in check
    assert "(auto)" in check
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]
