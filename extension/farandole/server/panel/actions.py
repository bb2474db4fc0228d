"""Performs the panel's actions on clusters and runs, using the cluster's driver if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from farandole.driver.cluster import Cluster
from farandole.driver.control.mailbox import DriverStatus, ask
from farandole.driver.core.pool import worker_name
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.starts import SERVER_START_SECONDS
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import DeadlineError, FarandoleError
from farandole.protocol import Status
from farandole.runs.lifecycle.heartbeat import SILENT_SECONDS
from farandole.runs.model import RunInfo
from farandole.runs.store import RunStore
from farandole.server.panel.cluster_monitor import ClusterMonitor
from farandole.server.panel.clusters import PendingAction, options_of
from farandole.server.panel.problems import RefusedError

SOON_SECONDS = 2.0
"""How long a request waits for early errors, in seconds.

Longer actions continue in the background, and the pages receive the results over the stream.
"""


class Actions:
    """Starts, scales and stops the clusters of one user, and stops runs."""

    def __init__(self, monitor: ClusterMonitor, store: RunStore, log: Callable[[str], None]) -> None:
        self._monitor = monitor
        self._store = store
        self._log = log
        self._tasks: dict[str, asyncio.Task[FarandoleError | None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[FarandoleError | None]]:
        """The actions in progress."""
        return list(self._tasks.values())

    async def start(self, options: WorkerOptions, workers: int) -> None:
        """Start all workers of a new cluster, or none if a worker fails. Notebooks can attach to the cluster later."""
        name, source = options.cluster, self._source()
        if name in self._tasks or self._monitor.snapshot.members(name) or self._monitor.snapshot.driver_status(name):
            raise RefusedError("exists", f"cluster {name!r} already exists. Choose another name, or stop it first.")
        names = [worker_name(name, index) for index in range(workers)]
        options = replace(options, workers=workers, together=workers)
        action = PendingAction(kind="start", options=options, wanted=workers)
        await self._soon(name, action, source.start(names, options, self._log, SERVER_START_SECONDS))

    async def scale(self, name: str, workers: int) -> None:
        """Scale a cluster to the given number of workers, using its driver if there is one."""
        await self._settled(name)
        members = self._members(name)
        if (status := self._monitor.snapshot.driver_status(name)) is not None:
            await self._ask(status, "scale", workers=workers)
            return
        self._refuse_if_changing(name)
        if workers > len(members):
            taken, number = set(members), workers - len(members)
            free = (worker_name(name, index) for index in range(workers + len(members)))
            names = [one for one in free if one not in taken][:number]
            options = replace(options_of(self._monitor.snapshot, name), workers=workers, together=number)
            job: Coroutine[Any, Any, Any] = self._source().start(names, options, self._log, SERVER_START_SECONDS)
        else:
            job = self._source().stop(members[workers:])
        await self._soon(name, PendingAction(kind="scale", wanted=workers), job)

    async def stop(self, name: str, *, stop_runs: bool) -> bool:
        """Stop a cluster, even while it is starting.

        Returns False if the cluster has no workers and only the error of a failed start had to be deleted. Raises
        RefusedError if runs are active and ``stop_runs`` is False.
        """
        snapshot = self._monitor.snapshot
        action = snapshot.pending.get(name)
        if (starting := self._tasks.get(name)) is not None and action is not None and action.kind == "start":
            starting.cancel()
            action.kind = "stop"
            return True
        await self._settled(name)
        if name in snapshot.pending and not snapshot.members(name):
            del snapshot.pending[name]
            return False
        members, active = self._members(name), sorted(snapshot.active_runs(name))
        if active and not stop_runs:
            raise RefusedError("runs_go_on", f"cluster {name!r} has an active run: {', '.join(active)}", runs=active)
        if driver_statuses := snapshot.driver_statuses_of(name):
            # Every driver of the cluster must stop it, because any remaining driver would restart the workers.
            await asyncio.gather(*(self._ask(status, "stop") for status in driver_statuses))
            return True
        self._refuse_if_changing(name)
        await self._soon(name, PendingAction(kind="stop"), self._source().stop(members))
        return True

    async def stop_run(self, info: RunInfo) -> None:
        """Stop a run using its driver. If the run has no driver, attach to the cluster to stop the run."""
        driver_statuses = [status for status in self._monitor.snapshot.driver_statuses if info.id in status.runs]
        if driver_statuses:
            own = next((status for status in driver_statuses if status.driver == info.driver), driver_statuses[0])
            await self._ask(own, "stop_run", run=info.id)
        elif info.id in self._monitor.snapshot.active_runs(info.cluster):
            await self._settled(info.cluster)
            self._refuse_if_changing(info.cluster)
            job = asyncio.to_thread(self._attach_and_stop, info)
            await self._soon(info.cluster, PendingAction(kind="run"), job)
        else:
            raise RefusedError("failed", _nothing_to_stop(info))

    def _attach_and_stop(self, info: RunInfo) -> None:
        client = self._source().client
        cluster = Cluster.attach(
            info.cluster, hub_url=client.url, token=client.token, store=self._store, progress=self._log
        )
        try:
            if info.id in cluster.background:
                cluster.stop_run(info.id)
        finally:
            cluster.close()

    async def _ask(self, status: DriverStatus, do: str, **what: Any) -> None:
        try:
            await ask(status, do, seconds=SOON_SECONDS, **what)
        except DeadlineError as exc:
            self._log(str(exc))
        await self._monitor.refresh()

    async def _soon(self, name: str, action: PendingAction, job: Coroutine[Any, Any, Any]) -> None:
        """Run a job in the background and raise its early errors. Later errors are shown with the cluster."""
        self._monitor.snapshot.pending[name] = action
        task = self._tasks[name] = asyncio.create_task(self._do(name, action, job), name=f"{action.kind} {name}")
        await asyncio.wait([task], timeout=SOON_SECONDS / 4)
        await self._monitor.refresh()
        await asyncio.wait([task], timeout=SOON_SECONDS)
        if task.done() and not task.cancelled() and (error := task.result()) is not None:
            self._monitor.snapshot.pending.pop(name, None)
            raise error

    async def _do(self, name: str, action: PendingAction, job: Coroutine[Any, Any, Any]) -> FarandoleError | None:
        pending = self._monitor.snapshot.pending
        error: FarandoleError | None = None
        try:
            await job
        except FarandoleError as exc:
            error = exc
        finally:
            pending.pop(name, None)
            if error is not None:
                pending[name] = PendingAction(options=action.options, error=str(error))
                self._log("\n".join([f"{action.kind} {name}: {error}", *getattr(error, "__notes__", ())]))
            # The refresh is part of the task, because the monitor may be closed as soon as all tasks are done.
            try:
                await self._monitor.refresh()
            finally:
                del self._tasks[name]
        return error

    def _members(self, name: str) -> Sequence[str]:
        """Return the names of a cluster's workers; raise RefusedError if there is no such cluster."""
        status = self._monitor.snapshot.driver_status(name)
        members = self._monitor.snapshot.members(name) or (status.workers if status else ())
        if not members:
            raise RefusedError("unknown", f"there is no cluster {name!r}")
        return members

    def _source(self) -> HubWorkers:
        """Return the source of workers; raise RefusedError if there is no hub."""
        if self._monitor.workers is None:
            raise RefusedError(
                "no_hub", "there is no JupyterHub here. Start local ranks with `%cluster start --local`."
            )
        return self._monitor.workers

    async def _settled(self, name: str) -> None:
        """If the last action on a cluster is complete, wait until it has also refreshed the snapshot."""
        action = self._monitor.snapshot.pending.get(name)
        if (task := self._tasks.get(name)) is not None and (action is None or not action.kind):
            await asyncio.wait([task])

    def _refuse_if_changing(self, name: str) -> None:
        """Raise RefusedError if an action on the cluster is in progress."""
        if name in self._tasks:
            raise RefusedError("failed", f"cluster {name!r} is being changed; try again when that is done")


def _nothing_to_stop(info: RunInfo) -> str:
    if info.status is not Status.RUNNING:
        return f"run {info.id} is not active: it is {info.status}"
    return (
        f"neither a driver nor a worker of run {info.id} answers, so there is nothing to stop; the run counts as lost "
        f"{SILENT_SECONDS / 60:.0f} minutes after the last sign of life of its driver, and can then be deleted"
    )
