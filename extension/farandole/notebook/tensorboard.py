"""Writes TensorBoard event files for a run. The driver adds each report to the files as soon as the report arrives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError
from farandole.runs.series import Axis

if TYPE_CHECKING:
    from farandole.protocol import Report
    from farandole.runs.run import Run


def check_tensorboard() -> None:
    """Raise UsageError if the packages for event files are missing. Call this before a run starts."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--tensorboard needs the packages torch and tensorboard in this notebook's environment ({error}); "
            "run `%pip install tensorboard`, or omit the option"
        ) from error


class TensorBoardWriter:
    """Writes the event files of a run, with one folder ``<run>/tensorboard/rank-<n>`` for each rank.

    TensorBoard therefore draws the lines of all ranks for one series in one chart. After an error, nothing more is
    written, and the run continues with a notice about the error.
    """

    def __init__(self, run: Run) -> None:
        check_tensorboard()
        self._run = run
        self._lock = threading.Lock()
        self._writers: dict[int, Any] = {}
        self._axes: dict[tuple[int, str], Axis] = {}
        self._broken = False
        run.listen(self.add)

    def add(self, report: Report) -> None:
        """Write one report to the event file of its rank."""
        with self._lock:
            if self._broken:
                return
            try:
                self._write(report)
            except (OSError, ValueError) as error:
                # The writer raises ValueError for a step or a name that the format of event files cannot store.
                self._give_up(error)

    def close(self) -> None:
        """Flush and close the event files. Call this when the run has ended."""
        with self._lock:
            if self._broken:
                return
            try:
                self._write_config()
                for writer in self._writers.values():
                    writer.close()
            except (OSError, ValueError) as error:
                self._give_up(error)

    def _write(self, report: Report) -> None:
        writer = self._writers.get(report.rank) or self._open(report.rank)
        for name, value in report.values.items():
            axis = self._axes.setdefault((report.rank, name), Axis())
            writer.add_scalar(name, value, axis.place(report.step, report.epoch), walltime=report.time)

    def _write_config(self) -> None:
        """Write the hyper-parameters beside the reports of rank 0, where TensorBoard's page for them finds both."""
        if not (config := self._run.config):
            return
        from torch.utils.tensorboard.summary import hparams

        writer = self._writers.get(0) or self._open(0)
        for summary in hparams(config, {}):  # type: ignore[no-untyped-call]
            writer.file_writer.add_summary(summary)

    def _open(self, rank: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        folder = self._run.folder / "tensorboard" / f"rank-{rank}"
        self._writers[rank] = SummaryWriter(str(folder), flush_secs=2)
        return self._writers[rank]

    def _give_up(self, error: Exception) -> None:
        self._broken = True
        text = f"TensorBoard's event files are incomplete: {error}; the run's metrics are complete"
        self._run.notice(text, warning=True)
