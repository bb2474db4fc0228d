"""Runs the notebook that predicts rain with small sizes, as a user would in JupyterLab."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from spawner_config.settings import ROOT
from tests.notebooks import run_cells

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.kernel import RemoteKernel

NOTEBOOK = ROOT / "notebooks" / "05-nowcasting.ipynb"
CELL_SECONDS = 300.0
PICTURE = "nowcast.gif"
TRAIN, PAST, AHEAD = 24, 4, 6
STEPS = (1, 3, 5)
"""The predicted images, from 0, for which the notebook shows errors."""
SMALL = f"""
DATA = {{data!r}}
TRAIN = {TRAIN}
PAST, AHEAD = {PAST}, {AHEAD}
PATCH, STRIDE = 32, 64
WET = 0.2
HIDDEN = 8
EPOCHS = 1
BATCH_SIZE = 8
LEARNING_RATE = 3e-3
SEED = 0
WORKERS = 2
"""
FORECASTS = ("persistence", "extrapolation", "ConvLSTM")


def run_notebook(kernel: RemoteKernel, parameters: str) -> dict[str, str]:
    """Run the notebook with other parameters, and return the output of each cell by its tag or its first line."""
    outputs = run_cells(kernel, parameters, deadline=CELL_SECONDS)
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]
    return outputs


def assert_reported(outputs: dict[str, str], data: Path) -> None:
    """Check that the notebook shows the errors of each forecast, and for persistence those of these radar images."""
    rows = re.findall(r"^(\w+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s*$", outputs["result"], re.MULTILINE)
    assert [name for name, *_ in rows] == [*FORECASTS, *FORECASTS]
    errors, indices = np.array([row[1:] for row in rows], float).reshape(2, len(FORECASTS), len(STEPS))
    assert np.allclose(errors[0], errors_of_persistence(data), atol=6e-4)
    assert (errors > 0).all()
    assert (indices <= 1).all()


def errors_of_persistence(data: Path) -> list[float]:
    """Return the mean absolute errors in mm/h, if the rain stays as it is after the past of each test."""
    with np.load(data) as file:
        rain = file["rain_x10"][TRAIN:] / 10
    lasts = range(PAST - 1, len(rain) - AHEAD)
    return [float(np.mean([np.abs(rain[last + 1 + step] - rain[last]) for last in lasts])) for step in STEPS]
