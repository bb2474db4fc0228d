"""What a page may do to clusters and runs: asked of the driver that leads, else done here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from farandole.driver.cluster import START_SECONDS, Cluster
from farandole.driver.control.mailbox import DriverStatus, ask
from farandole.driver.core.pool import worker_name
from farandole.driver.workers.source import HubWorkers
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import DeadlineError, FarandoleError
from farandole.runs.model import RunInfo
from farandole.runs.store import RunStore
from farandole.server.panel.cluster_monitor import ClusterMonitor
from farandole.server.panel.clusters import Work, options_of
from farandole.server.panel.problems import RefusedError

SOON_SECONDS = 2.0
"""How long a page waits for a refusal; what takes longer goes on, and the stream tells how."""


class Actions:
    """Starts, scales and stops clusters of one user, and stops runs."""

    def __init__(self, fleet: ClusterMonitor, store: RunStore, log: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._store = store
        self._log = log
        self._tasks: dict[str, asyncio.Task[FarandoleError | None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[FarandoleError | None]]:
        """What goes on."""
        return list(self._tasks.values())

    async def start(self, options: WorkerOptions, workers: int) -> None:
        """Start the workers of a new cluster, all or none; a notebook attaches it."""
        name, source = options.cluster, self._source()
        if name in self._tasks or self._fleet.sources.members(name) or self._fleet.sources.sign(name):
            raise RefusedError("exists", f"cluster {name!r} is there already. Choose another name, or stop it first.")
        names = [worker_name(name, index) for index in range(workers)]
        options = replace(options, workers=workers, together=workers)
        work = Work(kind="start", options=options, wanted=workers)
        await self._soon(name, work, source.start(names, options, self._log, START_SECONDS))

    async def scale(self, name: str, workers: int) -> None:
        """Have a cluster so many workers; its driver does that where one leads it."""
        members = self._members(name)
        if (sign := self._fleet.sources.sign(name)) is not None:
            await self._ask(sign, "scale", workers=workers)
            return
        await self._wait_or_refuse(name)
        if workers > len(members):
            taken, number = set(members), workers - len(members)
            free = (worker_name(name, index) for index in range(workers + len(members)))
            names = [one for one in free if one not in taken][:number]
            options = replace(options_of(self._fleet.sources, name), workers=workers, together=number)
            job: Coroutine[Any, Any, Any] = self._source().start(names, options, self._log, START_SECONDS)
        else:
            job = self._source().stop(members[workers:])
        await self._soon(name, Work(kind="scale", wanted=workers), job)

    async def stop(self, name: str, *, stop_runs: bool) -> bool:
        """Stop a cluster, also one that is just starting; returns False where there was only a failure to forget.

        Raises RefusedError: runs go on, and ``stop_runs`` does not say that they may end.
        """
        sources = self._fleet.sources
        work = sources.works.get(name)
        if (starting := self._tasks.get(name)) is not None and work is not None and work.kind == "start":
            starting.cancel()
            work.kind = "stop"
            return True
        if name in sources.works and not sources.members(name):
            del sources.works[name]
            return False
        members, going = self._members(name), sorted(sources.going(name))
        if going and not stop_runs:
            raise RefusedError("runs_go_on", f"cluster {name!r} has a run that goes on: {', '.join(going)}", runs=going)
        if driver_statuses := sources.leads(name):
            # Who leads it too would start its workers anew.
            await asyncio.gather(*(self._ask(sign, "stop") for sign in driver_statuses))
            return True
        await self._wait_or_refuse(name)
        await self._soon(name, Work(kind="stop"), self._source().stop(members))
        return True

    async def stop_run(self, info: RunInfo) -> None:
        """Stop a run: its driver does that, or where it has none a driver that is made for it."""
        driver_statuses = [sign for sign in self._fleet.sources.driver_statuses if info.id in sign.runs]
        if driver_statuses:
            own = next((sign for sign in driver_statuses if sign.driver == info.driver), driver_statuses[0])
            await self._ask(own, "stop_run", run=info.id)
        elif info.id in self._fleet.sources.going(info.cluster):
            await self._wait_or_refuse(info.cluster)
            job = asyncio.to_thread(self._take_up_and_stop, info)
            await self._soon(info.cluster, Work(kind="run"), job)
        else:
            raise RefusedError("failed", f"run {info.id} does not go on: it is {info.status}")

    def _take_up_and_stop(self, info: RunInfo) -> None:
        client = self._source().client
        where: dict[str, Any] = {
            "hub_url": client.url,
            "token": client.token,
            "store": self._store,
            "progress": self._log,
        }
        cluster = Cluster.attach(info.cluster, **where)
        try:
            if info.id in cluster.background:
                cluster.stop_run(info.id)
        finally:
            cluster.close()

    async def _ask(self, sign: DriverStatus, do: str, **what: Any) -> None:
        try:
            await ask(sign, do, seconds=SOON_SECONDS, **what)
        except DeadlineError as exc:
            self._log(str(exc))
        await self._fleet.refresh()

    async def _soon(self, name: str, work: Work, job: Coroutine[Any, Any, Any]) -> None:
        """Do a job in the background, and raise what goes wrong soon; what goes wrong later its cluster tells."""
        self._fleet.sources.works[name] = work
        task = self._tasks[name] = asyncio.create_task(self._do(name, work, job), name=f"{work.kind} {name}")
        await asyncio.wait([task], timeout=SOON_SECONDS / 4)
        await self._fleet.refresh()
        await asyncio.wait([task], timeout=SOON_SECONDS)
        if task.done() and not task.cancelled() and (error := task.result()) is not None:
            self._fleet.sources.works.pop(name, None)
            raise error

    async def _do(self, name: str, work: Work, job: Coroutine[Any, Any, Any]) -> FarandoleError | None:
        works = self._fleet.sources.works
        try:
            await job
        except FarandoleError as exc:
            works[name] = Work(options=work.options, error=str(exc))
            return exc
        except BaseException:
            works.pop(name, None)
            raise
        else:
            works.pop(name, None)
            return None
        finally:
            # Only then is it done: nobody is asked any more when nothing is to be done and no page is open.
            try:
                await self._fleet.refresh()
            finally:
                del self._tasks[name]

    def _members(self, name: str) -> Sequence[str]:
        sign = self._fleet.sources.sign(name)
        members = self._fleet.sources.members(name) or (sign.workers if sign else ())
        if not members:
            raise RefusedError("unknown", f"there is no cluster {name!r}")
        return members

    def _source(self) -> HubWorkers:
        if self._fleet.workers is None:
            raise RefusedError(
                "no_hub", "there is no JupyterHub here. `%cluster start --local` starts ranks on this machine."
            )
        return self._fleet.workers

    async def _wait_or_refuse(self, name: str) -> None:
        """Wait where something is done and only looked at once more; raises RefusedError where it is not done."""
        work = self._fleet.sources.works.get(name)
        if (task := self._tasks.get(name)) is None:
            return
        if work is None or not work.kind:
            await asyncio.wait([task])
        if name in self._tasks:
            raise RefusedError("failed", f"cluster {name!r} is just being changed; try again when that is done")
