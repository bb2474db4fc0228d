"""Computes the parts of a job on a rank, as tasks of Dask."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from distributed import Status, get_worker

from farandole.batches.results import BatchRunner, Skipped, joined, write
from farandole.batches.sources import Files, Frame, Source, TableFiles
from farandole.batches.stages import USER_ERRORS, Chain
from farandole.exceptions import FarandoleError, RankError
from farandole.protocol import foreign_code

ENDED = frozenset({Status.closing, Status.closed, Status.failed})
"""The states of a Dask worker that has lost its scheduler, or leaves it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some rows of a source, whose results are one file. A ``stop`` of None means all rows of a partition."""

    name: str
    start: int
    stop: int | None


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """What is known of a part that was computed, or the error. Without rows, there is no file."""

    rows: int = 0
    size: int = 0
    sha256: str = ""
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    seconds: float = 0.0
    failure: FarandoleError | None = None


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What each rank gets once.

    ``stages`` and ``source`` are pickles of the version ``python``. There is no source if each part comes with its
    rows. With ``skip``, records for which a stage fails are left out.
    """

    stages: bytes
    source: bytes | None
    python: str
    batch_size: int
    skip: bool


class Job:
    """A job on a rank, which is the result of a task, so that it ends with the rank or when the driver releases it.

    Its stages are made for the first part that a rank computes. Dask gives the ranks one part at a time.
    """

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def __reduce__(self) -> tuple[type[Job], tuple[JobSpec]]:
        # Dask may write results to the disk or move them to another rank. The stages are made again there.
        return Job, (self._spec,)

    @cached_property
    def _chain(self) -> Chain:
        return Chain(self._unpickled(self._spec.stages, "the stages"))

    @cached_property
    def _source(self) -> Source:
        source: Source = self._unpickled(self._spec.source or b"", "the source")
        if isinstance(source, Files | TableFiles):
            # Otherwise, each record would fail, and be left out with `skip`.
            source.storage.check()
        return source

    def _unpickled(self, data: bytes, what: str) -> Any:
        if problem := foreign_code(data, self._spec.python):
            raise RankError(f"{what} cannot be used on the ranks: {problem}. Use the same Python in the notebook")
        try:
            return pickle.loads(data)
        except USER_ERRORS as exc:
            raise RankError(
                f"{what} cannot be unpickled on a rank: {type(exc).__name__}: {exc}. Install the packages on the "
                "workers, or define the functions and classes in the notebook"
            ) from exc

    def compute(self, part: Part, rows: Any, target: Path) -> PartResult:
        """Compute a part, and write it to the new file ``target``. ``rows`` has the rows if the job has no source."""
        began = time.monotonic()
        source = self._source_of(rows)
        stop = len(source) if isinstance(source, Frame) else part.stop or 0
        runner = BatchRunner(self._chain, source, part.name, skip=self._spec.skip)
        for start in range(part.start, stop, self._spec.batch_size):
            if _is_withdrawn():
                return PartResult()
            runner.run(start, min(start + self._spec.batch_size, stop))
        about = PartResult(skipped=tuple(runner.skipped), seconds=time.monotonic() - began)
        return self._stored(runner, part, target, about)

    def _source_of(self, rows: Any) -> Source:
        if rows is None:
            return self._source
        if isinstance(rows, bytes):
            records: Source = self._unpickled(rows, "the records")
            return records
        return Frame(rows)

    def _stored(self, runner: BatchRunner, part: Part, target: Path, about: PartResult) -> PartResult:
        if not runner.tables:
            return about
        table = joined(runner.tables, part.name)
        size, sha256 = write(table, target, part.name)
        columns = {one.name: one.type for one in table.schema}
        return replace(about, rows=table.num_rows, size=size, sha256=sha256, columns=columns)


def open_job(spec: JobSpec) -> Job:
    """Return the job, as a task on a rank."""
    return Job(spec)


def compute_part(job: Job, part: Part, rows: Any, target: Path, topic: str) -> None:
    """Compute a part as a task, and send the result to the driver as an event, with the name of the file ``target``.

    An event is at the driver as soon as it is sent. The result of a task would stay on the rank, which may be lost
    before the driver fetches it. Errors are sent as well, because Dask would also log those that a task raises.
    """
    try:
        result = job.compute(part, rows, target)
    except FarandoleError as exc:
        result = PartResult(failure=exc)
    if not _is_withdrawn():
        get_worker().log_event(topic, pickle.dumps((target.name, result)))


def _is_withdrawn() -> bool:
    """Return whether the driver has cancelled the task of this thread, or has ended itself.

    Dask cannot stop a task that is running.
    """
    try:
        worker = get_worker()
    except ValueError:
        # This is no task.
        return False
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state == "cancelled" or worker.status in ENDED
