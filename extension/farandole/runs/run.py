"""A run, which is one execution of a training cell, with its code, metrics, logs and outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.exceptions import FarandoleError, RankError, UsageError
from farandole.hyperparameters import Hyperparameter, checked
from farandole.protocol import Kind, Report, Status, check_usage, checked_sync, report_from_json
from farandole.runs.checkpoints.found import Checkpoint, checkpoints_of, newest_first
from farandole.runs.model import RankStatus, RankView, RunInfo, still_going
from farandole.runs.positions import JournalPosition
from farandole.runs.series import RankTable, Series, drawn, text_of_any_kind
from farandole.runs.writer import Nowhere, Sink, strict_json
from farandole.times import duration_text

if TYPE_CHECKING:
    import pandas as pd

Listener = Callable[[Report], None]

SYNC_SECONDS = 30.0
"""How long ``run.json`` may lack figures of `fd.sync` if nothing else changes. Each rank sends them every second."""


class Run:
    """One execution of a training cell.

    The event loop's thread adds messages to the run, and other threads read from the run. One lock guards all mutable
    state. The lock is never held while a file is written or a listener is called.
    """

    def __init__(
        self, info: RunInfo, code: str, sink: Sink | None = None, *, written: Mapping[str, int] | None = None
    ) -> None:
        """Make a run. To take over a run, ``written`` has the number of the last message in its files, by kernel id."""
        self.code = code
        self._resumed = written is not None
        self._written = written or {}
        self._info = info
        self._sink: Sink = sink or Nowhere()
        self._lock = threading.RLock()
        self._tables: dict[int, RankTable] = {rank: RankTable() for rank in range(info.size)}
        self._views = {rank: RankView(rank, worker) for rank, worker in enumerate(info.workers)}
        self._listeners: list[Listener] = []
        self._output_bytes = 0
        self._sync_times: dict[int, float] = {}
        """When each rank sent the last figures of `fd.sync` that were added, by the clock of its worker."""
        self._sync_due: float | None = None
        """When to write the figures of `fd.sync`, as a value of `time.monotonic`. None if ``run.json`` has them."""
        self._over = threading.Event()
        self.saver: Callable[[dict[str, Any]], str] | None = None
        """Saves a model, with the arguments of `save_model`. It is None if this driver does not lead the cluster."""
        self.failure: FarandoleError | None = None
        """The error that the cell of a failed run raises. It is None if this driver has not seen the failure."""
        if info.status.ended or sink is None:
            self._over.set()

    @property
    def info(self) -> RunInfo:
        """The description of the run that is stored in ``run.json``."""
        return self._info

    @property
    def id(self) -> str:
        """Id of the run, which consists of the start time and four random hexadecimal digits."""
        return self._info.id

    @property
    def name(self) -> str:
        """The name that the user gave the run, or an empty string."""
        return self._info.name

    @property
    def folder(self) -> Path:
        """The folder that contains the files of the run."""
        return self._info.folder

    @property
    def status(self) -> Status:
        """The status of the run."""
        return self._info.status

    @property
    def error(self) -> str | None:
        """Why the run did not finish successfully, or None."""
        return self._info.error

    @property
    def started(self) -> float:
        """When the run started, in seconds since the epoch."""
        return self._info.started

    @property
    def ended(self) -> float | None:
        """When the run ended, in seconds since the epoch, or None if it has not ended."""
        return self._info.ended

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._info.size

    @property
    def backend(self) -> str:
        """Backend of the run: ``horovod``, ``torch`` or ``none``."""
        return self._info.backend

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about the run that the user should read, such as warnings."""
        return self._info.notices

    @property
    def resumed_from(self) -> str | None:
        """Id of the run from whose checkpoint this run continued, or None."""
        return self._info.resumed_from

    @property
    def config(self) -> dict[str, Hyperparameter]:
        """The hyper-parameters of the run, which ``--config`` and ``fd.config`` have set, by name."""
        return dict(self._info.config)

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The run's checkpoints on disk, oldest first."""
        return checkpoints_of(self.folder)

    @property
    def results(self) -> dict[int, Any]:
        """The values that the ranks passed to ``fd.result``, by rank."""
        return dict(self._info.results)

    @property
    def result(self) -> Any:
        """The value that the lowest rank among `results` passed to ``fd.result``, or None if no rank called it."""
        results = self._info.results
        return results[min(results)] if results else None

    def add_records(self, rank: int, *records: dict[str, Any], position: JournalPosition | None = None) -> None:
        """Add a batch of messages from a rank, unless the run's files already contain it. Ignore unknown kinds."""
        known = self._is_known(position)
        if known:
            records = tuple(record for record in records if self._is_unwritten(rank, record))
        lines: dict[str, list[str]] = {}
        reports = [self._add(rank, record, lines) for record in records]
        if not known:
            self._sink.append({name: "".join(added) for name, added in lines.items()}, position)
        for report in filter(None, reports):
            for listener in list(self._listeners):
                listener(report)

    def _add(self, rank: int, record: dict[str, Any], lines: dict[str, list[str]]) -> Report | None:
        kind = record.get("kind")
        if kind == Kind.REPORT:
            return self._add_report(rank, record, lines)
        if kind == Kind.RESULT:
            self._change(results={**self._info.results, rank: record["value"]})
        elif kind == Kind.CONFIG and rank == 0:
            self._change(config=checked({**self._info.config, **record["values"]}))
        elif kind == Kind.NOTICE and not (self._resumed and record["text"] in self.notices):
            self.notice(record["text"], warning=record.get("warning") is True)
        elif kind == Kind.SYNC:
            self._add_sync(rank, record)
        elif kind == Kind.FIT:
            self._view(rank).advice = str(record["text"])
        elif kind == Kind.USAGE:
            check_usage(record)
            self._view(rank).usage = record
            _add_line(lines, f"usage/rank-{rank}.jsonl", record)
        elif kind == Kind.PROGRESS:
            with self._lock:
                self._view(rank).progress[record["name"]] = record
        return None

    def _add_report(self, rank: int, record: dict[str, Any], lines: dict[str, list[str]]) -> Report:
        report = report_from_json(record)
        with self._lock:
            self._tables.setdefault(rank, RankTable()).add(report)
        _add_line(lines, f"metrics/rank-{rank}.jsonl", record)
        return report

    def _add_sync(self, rank: int, record: dict[str, Any]) -> None:
        """Add what a mode costs a rank, but do not write ``run.json`` for each such message."""
        figures = checked_sync(record)
        with self._lock:
            self._sync_times[rank] = record["time"]
            self._info = replace(self._info, sync={**self._info.sync, rank: figures})
            now = time.monotonic()
            self._sync_due = self._sync_due or now + SYNC_SECONDS
            if now >= self._sync_due:
                self._change()

    def add_log(
        self, rank: int, text: str, position: JournalPosition | None = None, printed: float | None = None
    ) -> None:
        """Add output that a rank printed at the time ``printed``, or now. Ignore output that the files contain."""
        if self._is_known(position):
            return
        with self._lock:
            self._view(rank).log.add(text)
            self._output_bytes += len(text.encode("utf-8", "replace"))
        self._sink.append({f"logs/rank-{rank}.log": text}, position, printed)

    def _is_known(self, position: JournalPosition | None) -> bool:
        return position is not None and position[1] <= self._written.get(position[0], 0)

    def _is_unwritten(self, rank: int, record: dict[str, Any]) -> bool:
        """Return whether the run needs a message that ``positions.json`` counts, because no file may have its content.

        Progress and advice are in no file, and figures of `fd.sync` are written late. In an elastic run, several
        kernels have had the same rank, and their journals are read in any order, so only the newest figures count.
        """
        kind = record.get("kind")
        newest = kind == Kind.SYNC and record["time"] >= self._sync_times.get(rank, 0.0)
        return newest or kind in {Kind.PROGRESS, Kind.FIT}

    def set_rank_state(self, rank: int, state: RankStatus) -> None:
        """Set the state of a rank, which the dashboard shows."""
        self._view(rank).state = state

    def assign_ranks(self, workers: Sequence[str]) -> None:
        """Assign rank 0 to the first of ``workers``, rank 1 to the second and so on. Mark all other ranks as dead."""
        with self._lock:
            for rank, worker in enumerate(workers):
                view = self._view(rank)
                view.worker, view.state = worker, "running"
                self._tables.setdefault(rank, RankTable())
            for rank in set(self._views) - set(range(len(workers))):
                self._views[rank].state = "dead"
            self._change(size=len(workers), workers=tuple(workers))

    def notice(self, text: str, *, warning: bool = False) -> None:
        """Add a notice for the user. A ``warning`` reports a loss, a hang or a failure."""
        with self._lock:
            warnings = (*self._info.warnings, text) if warning else self._info.warnings
            self._change(notices=(*self._info.notices, text), warnings=warnings)
            ended = self._info.status.ended
        if ended:
            self._sink.flush()

    def finish(self, status: Status, error: str | None = None, *, ended: float | None = None) -> None:
        """Record the end of the run and write all pending data. A second call does nothing.

        ``ended`` is in seconds since the epoch. The default is the current time.
        """
        with self._lock:
            if self._info.status.ended:
                return
            self._change(status=status, error=error, ended=ended or time.time())
        self._sink.close()
        self._over.set()

    def write_to(self, sink: Sink) -> None:
        """Write all later changes to ``sink``."""
        self._sink = sink

    def let_go(self) -> None:
        """Write all pending data and stop following the run, which continues until another driver attaches to it."""
        with self._lock:
            if self._sync_due is not None:
                self._change()
        self._sink.close()
        self._over.set()

    def wait(self, timeout: float | None = None) -> Run:
        """Wait until the run has ended and return it. ``timeout`` is in seconds, or None for no limit.

        Raises:
            RankError: the run failed or was stopped.
            DeadlineError: the run has not ended after ``timeout``.
            UsageError: the run continues without this driver.
        """
        # This waits until the files are closed, because they must contain the end of the run when this returns.
        if not self._over.wait(timeout) and not self.status.ended:
            raise still_going(self.id, timeout)
        if not self.status.ended:
            raise UsageError(f"run {self.id} continues without this driver; attach to it with `%cluster attach`")
        if self.status is not Status.FINISHED:
            raise self.failure or RankError(self.error or f"run {self.id} is {self.status}")
        return self

    def save_model(
        self,
        name: str,
        *,
        model: str = "model",
        example: str = "",
        metrics: Mapping[str, float] | None = None,
        data: str = "",
        labels: Sequence[str] = (),
        onnx: bool = False,
    ) -> str:
        """Save a model of rank 0 as a new version in the model store, and return its version, such as ``iris:3``.

        ``model`` and ``example`` are the names of variables on rank 0. The other arguments are those of
        ``fd.save_model``.

        Raises:
            ModelError: the model cannot be saved. Nothing is stored.
            UsageError: this notebook does not lead the cluster of this run, or the cluster has begun another run since,
                or a metric or a label is not valid.
        """
        if self.saver is None:
            raise UsageError(
                f"this notebook does not lead the cluster of run {self.id}; save the model in its cell, with "
                "fd.save_model"
            )
        return self.saver(
            {
                "name": name,
                "model": model,
                "example": example,
                "metrics": dict(metrics or {}),
                "data": data,
                "labels": list(labels),
                "onnx": onnx,
            }
        )

    def save_full(self, path: str | Path, *, name: str = "model", step: int | None = None) -> Path:
        """Write a model of the newest intact checkpoint to one file of safetensors, and return its path.

        A mesh or a pipeline may have divided the model. One tensor at a time is in memory.

        Args:
            path: the file, such as ``model.safetensors``. An earlier file is replaced.
            name: the name of the model in ``fd.state``.
            step: the step of another checkpoint, of those in `checkpoints`.

        Raises:
            UsageError: there is no such checkpoint, no such model in it, or other users may have written it.
            ModelError: no such checkpoint is intact, or the file cannot be written.
        """
        from farandole.runs.checkpoints.full_model import write_model  # it imports torch

        target = Path(path).expanduser()
        write_model([one.path for one in newest_first(self.checkpoints, self.id, step)], name, target)
        return target

    def flush(self) -> None:
        """Write all pending data to the files now."""
        self._sink.flush()

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with each report from now on. The call is made on the thread that adds the report."""
        self._listeners.append(listener)

    def ranks(self) -> list[RankView]:
        """Return the latest state of all ranks, ordered by rank."""
        with self._lock:
            return [replace(view, progress=dict(view.progress)) for _, view in sorted(self._views.items())]

    def received(self) -> tuple[int, int]:
        """Return how many reports and how many bytes of output have been added. Both grow with any sign of life."""
        with self._lock:
            return sum(len(table.time) for table in self._tables.values()), self._output_bytes

    def series(self, *, by_rank: bool = True) -> list[Series]:
        """Return all series, condensed to at most 300 points per rank. ``by_rank`` adds a line for each rank."""
        with self._lock:
            return drawn(self._tables, by_rank=by_rank)

    def dataframe(self) -> pd.DataFrame:
        """Return all reports as a data frame with the columns rank, time, step, epoch, and one for each series.

        Times are in seconds since the epoch.
        """
        with self._lock:
            frames = [table.frame(rank) for rank, table in sorted(self._tables.items()) if table.time]
        if not frames:
            return RankTable().frame(0)
        with text_of_any_kind():
            import pandas as pd

            return pd.concat(frames, ignore_index=True)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        seconds = duration_text(self._info.seconds)
        return f"<Run {self.id}{name}: {self.status}, {self.size} ranks, {self.backend}, {seconds}>"

    def _view(self, rank: int) -> RankView:
        with self._lock:
            return self._views.setdefault(rank, RankView(rank))

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._info = replace(self._info, **changes)
            self._sync_due = None
            self._sink.replace("run.json", self._info.to_json)


def _add_line(lines: dict[str, list[str]], name: str, record: dict[str, Any]) -> None:
    lines.setdefault(name, []).append(f"{strict_json(record)}\n")
