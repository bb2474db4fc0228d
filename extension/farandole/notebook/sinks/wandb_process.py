"""The process that passes a run to Weights & Biases: `python -m farandole.notebook.sinks.wandb_process`.

W&B has a process of its own because it changes the kernel of a notebook: it keeps a copy of each display until the run
ends, stops the clock of the run at the end of each cell, and reads its settings only once.

Each line of the input is a JSON list of a method of `Recorder` and its argument: first `open`, then any number of
`save` and `log`, and at the end `configure`, `summarize` and `finish`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wandb

STEP = "step"


class Recorder:
    """Makes one run of W&B."""

    def __init__(self) -> None:
        self._run: Any = None

    def open(self, arguments: dict[str, Any]) -> None:
        """Start the run with these arguments for ``wandb.init``."""
        # The output and the load of this process are not those of the ranks.
        settings = wandb.Settings(console="off", silent=True, save_code=False, disable_git=True, x_disable_stats=True)
        self._run = wandb.init(**arguments, settings=settings)
        self._run.define_metric("*", step_metric=STEP)

    def save(self, files: dict[str, str]) -> None:
        """Save files with the run. In the mode "disabled" a run has no folder."""
        if self._run.disabled:
            return
        for name, text in files.items():
            path = Path(self._run.dir) / name
            path.write_text(text)
            self._run.save(str(path), base_path=self._run.dir, policy="now")

    def log(self, rows: list[dict[str, float]]) -> None:
        """Add rows to the history of the run."""
        for row in rows:
            self._run.log(row)

    def configure(self, values: dict[str, Any]) -> None:
        """Add values to the configuration of the run, and replace those with the same names."""
        self._run.config.update(values, allow_val_change=True)

    def summarize(self, values: dict[str, Any]) -> None:
        """Set values of the summary."""
        self._run.summary.update(values)

    def finish(self, exit_code: int) -> None:
        """End the run. It has failed if ``exit_code`` is not 0."""
        self._run.finish(exit_code=exit_code)


def main() -> None:
    """Follow the lines of the input. If the input ends without `finish`, W&B shows the run as failed."""
    recorder, action = Recorder(), ""
    for line in sys.stdin:
        action, argument = json.loads(line)
        method: Callable[[Any], None] = getattr(recorder, action)
        method(argument)
    if action not in {"", "finish"}:
        recorder.finish(1)


if __name__ == "__main__":
    main()
