"""Runs the notebook that finds similar images in photos, as a user would in JupyterLab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spawner_config.settings import ROOT
from tests.notebooks import run_cells

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.kernel import RemoteKernel

NOTEBOOK = ROOT / "notebooks" / "03-images-at-scale.ipynb"
CELL_SECONDS = 600.0
PER_CLASS = 20
SMALL = f"""
DATA = {{data!r}}
FOLDER = "images-at-scale"
IMAGES_PER_CLASS = {PER_CLASS}
DETECTOR_EPOCHS, FEATURES_EPOCHS = 1, 1
BATCH_SIZE = 20
LEARNING_RATE = 4e-3
BITS = 64
PART_ROWS = 64
SEED = 0
WORKERS = 2
BACKEND = "torch"
"""
STAGES = ("make", "decode", "detect", "crop", "extract", "pack")
RULES = ("mean box", "most contrast")
OTHER_FEATURES = ("random projections", "pixels")


@dataclass(frozen=True)
class Shown:
    """What the notebook shows.

    Attributes:
        stored: the number of photos whose features are stored.
        rates: the photos per second of each stage.
        boxes: the mean IoU and the hits of each way to find a box.
        precision: the precision of each kind of features.
    """

    stored: int
    rates: dict[str, float]
    boxes: dict[str, tuple[float, float]]
    precision: dict[str, float]


def run_notebook(kernel: RemoteKernel, parameters: str) -> Shown:
    """Run the notebook with other parameters."""
    outputs = run_cells(kernel, parameters, deadline=CELL_SECONDS)
    assert "cluster 'main' is stopped" in outputs["%cluster stop"]
    [stored] = re.findall(r"^([\d,]+) photos in [\d.]+ seconds$", outputs["store"], re.MULTILINE)
    return Shown(
        stored=int(stored.replace(",", "")),
        rates={name: rate for name, (rate,) in rows(outputs["throughput"]).items()},
        boxes={name: (iou, hits) for name, (iou, hits) in rows(outputs["boxes"]).items()},
        precision={name: precision for name, (precision, _) in rows(outputs["similar"]).items()},
    )


def rows(table: str) -> dict[str, list[float]]:
    """Return the numbers in each row of a table of pandas that is shown as text."""
    found = re.findall(r"^([a-z]+(?: [a-z]+)*)((?:\s+[\d.]+)+)\s*$", table, re.MULTILINE)
    return {name: [float(one) for one in numbers.split()] for name, numbers in found}


def assert_complete(shown: Shown, data: Path) -> None:
    """Check that each photo to test with has passed all stages, and that all rules and features are compared."""
    folders = (data / "test").iterdir()
    assert shown.stored == sum(min(PER_CLASS, len(list(folder.glob("*.png")))) for folder in folders)
    assert set(shown.rates) == set(STAGES)
    assert all(rate > 0 for rate in shown.rates.values())
    assert set(shown.boxes) == {*RULES, "detector"}
    assert set(shown.precision) == {*OTHER_FEATURES, "network"}
    assert all(0 <= one <= 1 for one in (*shown.precision.values(), *sum(shown.boxes.values(), ())))
