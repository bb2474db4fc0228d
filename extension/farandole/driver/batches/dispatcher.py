"""Gives the ranks the parts of a job, one at a time."""

from __future__ import annotations

import pickle
import queue
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import dask
from dask.delayed import Delayed
from distributed import Client, Future, KilledWorker

from farandole.batches.parts import JobSpec, Part, PartResult, compute_part, open_job
from farandole.exceptions import RankDiedError, RankError

MOST_LOSSES = 4
"""A part whose rank is lost this many times ends the job."""
TOPIC = "farandole-parts"
"""The topic of the events with the results of all jobs. Dask's scheduler keeps the last 1,000 events of each topic."""
NO_SIZE_WARNING = {"distributed.admin.large-graph-warning-threshold": "1 PiB"}
"""Records are sent with their part on purpose."""


OnDone: TypeAlias = Callable[[Part, PartResult, Path, int], None]
"""A callback with a part that is complete, its result, its file, and the number of the rank."""


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A part that a rank computes. ``rows`` keeps a partition of a Dask dataframe in memory until the part is done."""

    part: Part
    rank: int
    target: Path
    rows: Any
    future: Future[Any]


class Dispatcher:
    """Gives each Dask worker one part at a time, and gives the part of a lost worker to another one.

    Dask could distribute the parts itself, but it would count a lost worker against all parts that were queued there.
    All methods must be called on one thread, which need not be the one of an event loop.
    """

    def __init__(
        self,
        client: Client,
        spec: JobSpec,
        parts: Sequence[Part],
        *,
        payload: Callable[[Part], Any],
        target: Callable[[Part], Path],
        on_done: OnDone,
        wake: threading.Event,
    ) -> None:
        """Make a dispatcher.

        - ``payload`` returns the rows that are sent with a part, or None.
        - ``target`` returns the file to which a rank writes a part.
        - ``wake`` is set when `advance` has something to do.
        """
        self.workers: Mapping[str, int] = {}
        """The rank of each Dask worker that is connected, by its address. Another thread may replace it."""
        self.left: frozenset[str] = frozenset()
        """The addresses of Dask workers that were ended on purpose, which does not count as a loss.

        Another thread may replace it, but must do so before it replaces `workers`.
        """
        self._client = client
        self._spec = spec
        self._waiting = deque(parts)
        self._payload = payload
        self._target = target
        self._on_done = on_done
        self._wake = wake
        self._jobs: dict[str, Future[Any]] = {}
        self._tasks: dict[str, _Task] = {}
        self._losses: Counter[str] = Counter()
        self._results: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        client.subscribe_topic(TOPIC, self._hear)

    @property
    def done(self) -> bool:
        """Whether no part is left."""
        return not self._waiting and not self._tasks

    def advance(self) -> None:
        """Call ``on_done`` with each part that is complete, and give parts to the workers that have none.

        Raises:
            RankDiedError: a part or its partition has lost its rank too often.
            RankError: a part cannot be computed.
        """
        workers = dict(self.workers)
        self._jobs = {address: job for address, job in self._jobs.items() if address in workers}
        # A worker may have sent a result just before it was lost.
        ended = self._take_results()
        for address, task in list(self._tasks.items()):
            status = task.future.status
            gone = address not in workers or status == "lost"
            if gone or status == "cancelled":
                self._repeat(self._tasks.pop(address), lost=gone and address not in self.left)
            elif status == "error":
                self._fail(task)
        for address, rank in workers.items():
            if address not in self._tasks and self._waiting:
                self._begin(address, rank)
        # Dask's client sends a message every 10 ms at most, so the next parts come first.
        for task in ended:
            task.future.release()

    def _take_results(self) -> list[_Task]:
        """Take the results of parts, and return their tasks. If some are errors, raise the first after the others."""
        ended: list[_Task] = []
        failures = []
        while not self._results.empty():
            name, result = pickle.loads(self._results.get())
            address = next((one for one, task in self._tasks.items() if task.target.name == name), None)
            if address is None:
                # The rank counted as lost and the part is computed again, or it belongs to an earlier job.
                continue
            task = self._tasks[address]
            if result.failure is not None:
                failures.append(result.failure)
            else:
                self._on_done(task.part, result, task.target, task.rank)
            # After an interrupt before this line, the part still counts as missing.
            ended.append(self._tasks.pop(address))
        for failure in failures:
            raise failure
        return ended

    def _hear(self, event: tuple[float, bytes]) -> None:
        """Receive a result, on a thread of the client."""
        self._results.put(event[1])
        self._wake.set()

    def close(self) -> None:
        """Withdraw all parts. Ranks stop after the batch that they compute, and then forget the stages."""
        self._client.unsubscribe_topic(TOPIC)
        futures = [task.future for task in self._tasks.values()]
        self._tasks, self._jobs = {}, {}
        for future in futures:
            future.release()

    def _begin(self, address: str, rank: int) -> None:
        part = self._waiting.popleft()
        if address not in self._jobs:
            self._jobs[address] = self._submit(address, open_job, self._spec)
        rows, target = self._payload(part), self._target(part)
        if isinstance(rows, Delayed):
            rows = self._client.compute(rows)
        future = self._submit(address, compute_part, self._jobs[address], part, rows, target, TOPIC)
        self._tasks[address] = _Task(part=part, rank=rank, target=target, rows=rows, future=future)
        future.add_done_callback(lambda _: self._wake.set())

    def _submit(self, address: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        with dask.config.set(NO_SIZE_WARNING):
            return self._client.submit(function, *arguments, workers=[address], pure=False)

    def _fail(self, task: _Task) -> None:
        exc = task.future.exception()
        if isinstance(exc, KilledWorker):
            raise RankDiedError(
                f"{task.part.name} cannot be computed, because its tasks have ended {exc.allowed_failures + 1} ranks, "
                "for example because they need too much memory; try its rows alone, or smaller partitions and another "
                "folder. The parts that are complete are kept"
            ) from exc
        raise RankError(
            f"{task.part.name} cannot be computed: {type(exc).__name__}: {exc}. The parts that are complete are kept, "
            "and map_batches continues if you call it again with the same arguments"
        ) from exc

    def _repeat(self, task: _Task, *, lost: bool) -> None:
        """Put a part first in the queue. Only losses of its rank are counted."""
        task.future.release()
        self._losses[task.part.name] += lost
        if self._losses[task.part.name] >= MOST_LOSSES:
            raise RankDiedError(
                f"{task.part.name} has lost its rank {MOST_LOSSES} times, so a stage may end the process of the rank, "
                "for example because it needs too much memory; try its rows alone, or a smaller batch_size. The parts "
                "that are complete are kept"
            )
        self._waiting.appendleft(task.part)
