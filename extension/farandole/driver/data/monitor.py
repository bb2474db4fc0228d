"""Observes the tasks of Dask's scheduler."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from distributed import Scheduler
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import TaskPrefix, WorkerState
from tornado.ioloop import PeriodicCallback

from farandole.driver.data.status import DaskStatus, DaskWorker

LOOK_SECONDS = 1.0
UNFINISHED: tuple[Literal["waiting", "no-worker", "queued", "processing"], ...] = (
    "waiting",
    "no-worker",
    "queued",
    "processing",
)
"""The states of tasks that Dask still has to compute."""


class TaskMonitor(SchedulerPlugin):
    """Describes the scheduler of which it is a plugin once a second.

    The scheduler calls all methods on its loop, so nothing changes while they read its workers and tasks. `status` is
    replaced as a whole, so any thread may read it, and no reader waits for a scheduler that is busy.
    """

    name = "farandole-monitor"

    def __init__(self) -> None:
        self.status = DaskStatus(tasks=0, done=0, failed=0, workers={})
        """The latest status."""
        self._done: Counter[str] = Counter()
        """How many tasks each Dask worker has completed, by its address."""
        self._all_done = self._all_failed = 0
        self._seen = self._before = (0, 0)
        """How many tasks had been done and had failed at the last look, and when all tasks had ended."""
        self._unfinished = 0
        self._looks: PeriodicCallback | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Begin to observe the scheduler. It ends this itself when it closes."""
        workers, prefixes = scheduler.workers, scheduler.task_prefixes
        look = PeriodicCallback(lambda: self.look(workers.values(), prefixes.values()), LOOK_SECONDS * 1000)
        self._looks = scheduler.periodic_callbacks[self.name] = look

    async def close(self) -> None:
        """Describe a scheduler that ends, because its workers and the tasks that wait end with it."""
        if self._looks is not None:
            # The scheduler ends it only after all plugins are closed.
            self._looks.stop()
        self.look([], [])

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:  # noqa: ARG002 - Dask passes it
        """Forget an earlier Dask worker at the same address."""
        self._done.pop(worker, None)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002 - as above
        """Count a task that has ended. The scheduler waits for this at each change of the state of a task."""
        if start == "processing" and finish == "memory":
            self._all_done += 1
            self._done[kwargs["worker"]] += 1
        elif finish == "erred":
            self._all_failed += 1

    def look(self, ranks: Iterable[WorkerState], prefixes: Iterable[TaskPrefix]) -> None:
        """Describe the Dask workers of these ranks, and the tasks of these prefixes, each of which counts its tasks."""
        ended = (self._all_done, self._all_failed)
        unfinished = sum(prefix.states[state] for prefix in prefixes for state in UNFINISHED)
        if not self._unfinished and (unfinished or ended != self._seen):
            # These tasks are new. The progress of earlier ones would hide theirs.
            self._before = self._seen
        self._seen, self._unfinished = ended, unfinished
        done, failed = (now - before for now, before in zip(ended, self._before, strict=True))
        workers = {name: self._worker(own) for name, own in _by_worker(ranks).items()}
        self.status = DaskStatus(tasks=done + failed + unfinished, done=done, failed=failed, workers=workers)

    def _worker(self, ranks: Sequence[WorkerState]) -> DaskWorker:
        running = sum(map(_running, ranks))
        return DaskWorker(
            running=running,
            waiting=sum(len(rank.processing) for rank in ranks) - running,
            done=sum(self._done[rank.address] for rank in ranks),
            memory=sum(rank.memory.managed for rank in ranks),
            memory_limit=sum(rank.memory_limit for rank in ranks),
            spilled=sum(rank.memory.spilled for rank in ranks),
            paused=next((pause for rank in ranks if (pause := _pause(rank))), None),
        )


def _by_worker(ranks: Iterable[WorkerState]) -> dict[str, list[WorkerState]]:
    found = defaultdict(list)
    for rank in ranks:
        # Its name is that of the worker, a slash and the id of the process; see `farandole.ranks.data.worker`.
        found[str(rank.name).rpartition("/")[0]].append(rank)
    return found


def _running(rank: WorkerState) -> int:
    """Return how many tasks run, without those that have ended since the last heartbeat."""
    return 0 if _pause(rank) == "training" else len(rank.processing & rank.executing.keys())


def _pause(rank: WorkerState) -> str | None:
    if rank.metrics.get("farandole_paused"):
        return "training"
    return "memory" if rank.status == Status.paused else None
