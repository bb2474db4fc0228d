"""The job that each engine does, and the time of its phases. This module imports no engine and no torch.

There are two flows. Each has the same phases on all engines:

- ``prepare`` reads Parquet files and computes rows for training: features of clicks, or pixels of decoded images.
- ``train`` trains a model for `EPOCHS` epochs in `CORES` processes, which average their gradients in each step.
- ``infer`` computes a prediction for each prepared row, and writes Parquet files.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

CORES = 2
FLOWS = ("clicks", "images")
PHASES = ("prepare", "train", "infer")
ROWS = {"clicks": 1_000_000, "images": 4_000}
FILES = 8
"""The number of files of each flow."""
EPOCHS = 2
BATCH = {"clicks": 2048, "images": 32}
"""The number of rows of a process in a step of a training."""
INFERENCE_BATCH = {"clicks": 8192, "images": 256}
INPUTS = {
    "clicks": ("price", "popularity", "hour_sin", "hour_cos", "category", "item"),
    "images": ("pixels",),
}
"""The columns of prepared rows that a model uses. There are also ``id`` and ``label``."""
ITEMS = 1000
CATEGORIES = ("books", "clothes", "food", "garden", "music", "phones", "sports", "toys")
CLASSES = 10
JPEG = 96
"""The width and the height of an image in the source."""
RESIZED, CROPPED = 40, 32
"""The width and the height of an image after it was resized, and after its edge was cut off."""
RESULT = "result.json"


class Job:
    """The paths of a script, and the seconds of its phases. All files that it writes are in the folder `work`.

    - Each call of `lap` ends a phase, which began when the one before it ended. The first one began when the process
      was started. The seconds of phases with the same name are added.
    - ``figures`` has other results of the script.
    """

    def __init__(self, source: Path, work: Path, begun: float) -> None:
        self.work = work
        self._source = source
        self._last = begun
        self.seconds: dict[str, float] = {}
        self.figures: dict[str, float] = {}

    def source(self, flow: str) -> str:
        """Return the folder with the Parquet files of a flow."""
        return str(self._source / flow)

    def prepared(self, flow: str) -> str:
        """Return the folder for the prepared rows of a flow, whose parent exists."""
        return str(self.work / f"{flow}-prepared")

    def model(self, flow: str) -> str:
        """Return the file for the parameters of the model of a flow."""
        return str(self.work / f"{flow}.pt")

    def output(self, flow: str) -> str:
        """Return the folder for the predictions of a flow, whose parent exists."""
        return str(output_of(self.work, flow))

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.monotonic()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def write(self) -> None:
        """Write the seconds and the figures into the file `RESULT`."""
        found = {"seconds": self.seconds, "figures": self.figures}
        (self.work / RESULT).write_text(json.dumps(found), encoding="utf-8")


def output_of(work: Path, flow: str) -> Path:
    """Return the folder for the predictions of a flow."""
    return work / f"{flow}-output"


def run(main: Callable[[Job], None]) -> None:
    """Run a script with the arguments SOURCE WORK BEGUN. BEGUN is the time of the system's monotonic clock."""
    source, work, begun = sys.argv[1:]
    job = Job(Path(source), Path(work), float(begun))
    main(job)
    job.write()
