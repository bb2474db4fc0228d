"""Takes snapshots and restores files in threads. They continue if the page that has asked for them is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from farandole.exceptions import FarandoleError
from farandole.server.panel import wire, wire_routes
from farandole.server.panel.problems import RefusedError, problem
from farandole.server.panel.snapshots.threads import in_thread

WAIT_SECONDS = 20.0
"""How long a response waits for the end of a job. Proxies end requests without a response after a minute."""
KEPT = 20
"""The number of jobs whose results are kept."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a job: where a file was restored, what the user should know, or why the job failed."""

    path: str | None = None
    notices: tuple[str, ...] = ()
    problem: wire.Problem | None = None


class Jobs:
    """The running jobs, and the outcomes of the last ones."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}
        self._taking = ""

    @property
    def taking(self) -> str | None:
        """The id of the job that takes a snapshot at the moment, or None."""
        task = self._tasks.get(self._taking)
        return self._taking if task is not None and not task.done() else None

    def take(self, work: Callable[[], Outcome]) -> str:
        """Start to take a snapshot, and return the job's id. Raises RefusedError if one is being taken already."""
        if self.taking:
            raise RefusedError("failed", "a snapshot is being taken already; wait until it is complete")
        self._taking = self.start(work)
        return self._taking

    def start(self, work: Callable[[], Outcome]) -> str:
        """Start to do something in a thread, and return the job's id."""
        done = [key for key, task in self._tasks.items() if task.done()]
        for key in done[: max(0, len(done) - KEPT + 1)]:
            del self._tasks[key]
        job = str(next(self._numbers))
        self._tasks[job] = asyncio.create_task(_outcome(work), name=f"panel: snapshots {job}")
        return job

    async def message(self, job: str) -> wire_routes.SnapshotJob:
        """Return a job's result, or that it goes on if it is not done after some seconds."""
        if job not in self._tasks:
            raise RefusedError("unknown", "the result is no longer known; load the list of snapshots again")
        task = self._tasks[job]
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        found = task.result() if task.done() else Outcome()
        return {
            "id": job,
            "done": task.done(),
            "path": found.path,
            "notices": list(found.notices),
            "problem": found.problem,
        }


async def _outcome(work: Callable[[], Outcome]) -> Outcome:
    try:
        return await in_thread(work)
    except FarandoleError as exc:
        return Outcome(problem=problem(exc))
