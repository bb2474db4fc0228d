"""Runs the notebook that trains, serves and publishes a model of typhoon tracks, as a user would in JupyterLab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT
from tests.notebooks import run_cells

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
REGISTRY = ""
SERVING_IMAGE = ""
RATE = 1000
"""
BASELINES = ("persistence", "straight on")
VERSIONS = ("first version", "second version")
SAME_KM = 1e-3
"""Predictions are equal if they differ by less than this distance."""


@dataclass(frozen=True)
class Shown:
    """What the notebook shows.

    Attributes:
        errors: the errors of each row in km after 6 and 24 hours.
        answers: the counted answers of the endpoint.
        image: what the notebook says of the image of the model, and of its answers if a hub serves it.
        stream: what the notebook says of the replayed season.
    """

    errors: dict[str, tuple[float, float]]
    answers: str
    image: str
    stream: str


def run_notebook(kernel: RemoteKernel, parameters: str) -> Shown:
    """Run the notebook with other parameters."""
    outputs = run_cells(kernel, parameters, deadline=CELL_SECONDS)
    rows = re.findall(r"^([a-z]+ [a-z0-9]+|persistence)\s+([\d.]+)\s+([\d.]+)\s*$", outputs["result"], re.MULTILINE)
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]
    assert "no endpoint runs" in outputs["%serve stop typhoon-stream"]
    errors = {name: (float(km_6), float(km_24)) for name, km_6, km_24 in rows}
    return Shown(errors, outputs["answers"], outputs["image"] + outputs["served image"], outputs["stream"])


def assert_served(shown: Shown) -> None:
    """Check that both versions have answered without a failed call while the second replaced the first."""
    assert "failed" not in shown.answers
    first, second = sorted(map(int, re.findall(r"'typhoon:(\d+)': [1-9]", shown.answers)))
    assert second == first + 1
    assert set(shown.errors) == {*BASELINES, *VERSIONS}


def assert_replayed(shown: Shown) -> None:
    """Check that each record of the season was scored exactly once, as in one request."""
    once, records = map(int, re.findall(r"(\d+) of (\d+) records were scored exactly once", shown.stream)[0])
    assert once == records > 0
    assert float(re.findall(r"differ from those of the endpoint by at most (\S+) km", shown.stream)[0]) < SAME_KM
