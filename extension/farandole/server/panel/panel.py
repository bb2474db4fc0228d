"""The panel of one notebook server: what it knows, for as long as somebody looks at it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from farandole.driver.workers.source import HubWorkers
from farandole.exceptions import NoClusterError
from farandole.runs.store import RunStore
from farandole.server.panel import wire
from farandole.server.panel.actions import Actions
from farandole.server.panel.charts import Charts
from farandole.server.panel.cluster_monitor import ClusterMonitor
from farandole.server.panel.clusters import Work, clusters
from farandole.server.panel.runs import RunIndex
from farandole.server.worker.routes import backends

FLEET_SECONDS = 3.0
UNSEEN_SECONDS = 30.0
"""Every open page has the panel, and few show it: a hub has other things to do than to answer those that do not."""
RUNS_SECONDS = 1.0
FIRST_SECONDS = 3.0


@dataclass
class Topic:
    """The newest message of a kind; ``version`` grows when it says something else."""

    message: wire.Message | None = None
    version: int = 0
    says: Hashable = None


class Panel:
    """What all pages of a notebook server are shown. It asks and reads only while it is `used`."""

    def __init__(self, *, root: Path, log: logging.Logger) -> None:
        self.store = RunStore()
        self.index = RunIndex(self.store.folder, root)
        self.charts = Charts()
        self.topics = {kind: Topic() for kind in ("clusters", "resources", "runs")}
        self.news = asyncio.Event()
        """Set at the next news, and then replaced."""
        # The hub tells its notebook servers with their environment.
        self._profiles = json.loads(os.environ.get("FARANDOLE_PROFILES") or "[]")
        self._limits = json.loads(os.environ.get("FARANDOLE_LIMITS") or "{}")
        self._backends = backends()
        self._log = log
        self._users = 0
        self._seen_by: set[object] = set()
        self._due = asyncio.Event()
        """Set when hub and workers are to be asked at once."""
        self._led: Sequence[tuple[str, Sequence[str]]] = ()
        self._turn = asyncio.Lock()
        self._works: dict[str, Work] = {}
        """What was begun, and what of it failed: also for a page that comes when nobody has looked for a while."""
        self._loops: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._fleet: ClusterMonitor | None = None
        self._actions: Actions | None = None

    @property
    def fleet(self) -> ClusterMonitor:
        """The hub and the workers; only while it is used."""
        assert self._fleet is not None
        return self._fleet

    @property
    def actions(self) -> Actions:
        """What can be done; only while it is used."""
        assert self._actions is not None
        return self._actions

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Look at hub, workers and runs until the last user has gone and all is done that was begun."""
        async with self._turn:
            if self._fleet is None:
                await self._begin()
            self._users += 1
        try:
            yield
        finally:
            async with self._turn:
                self._users -= 1
                if not self._users and not self.actions.tasks:
                    await self._end()
                elif not self._users:
                    self._due.set()

    async def state(self) -> wire.State:
        """Return all that a page begins with."""
        resources, page = self.resources(), await self.runs()
        return {"hub": self.fleet.hub, "resources": resources, "clusters": self.clusters(), "runs": page}

    def clusters(self) -> list[wire.Cluster]:
        """Return all clusters as they were last heard of."""
        return clusters(self.fleet.sources, self.index.notebook)

    async def runs(self) -> wire.RunPage:
        """Return the newest runs."""
        return await asyncio.to_thread(self.index.newest, self.fleet.sources.going())

    def resources(self) -> wire.Resources:
        """Return what may be started."""
        gpus = self.fleet.gpus
        return {
            "profiles": [_profile(one, gpus) for one in self._profiles],
            "gpus": [_gpu_class(name, counts) for name, counts in gpus.items()],
            "quota": {
                "workers": len(self.fleet.sources.servers),
                "workers_max": self._limits.get("workers_per_user"),
                "ranks_per_worker_max": self._limits.get("ranks_per_worker"),
            },
            "backends": self._backends,
        }

    def see(self, page: object, *, seen: bool) -> None:
        """Note whether somebody sees the panel on a page."""
        if not seen:
            self._seen_by.discard(page)
        elif page not in self._seen_by:
            self._seen_by.add(page)
            self._due.set()

    def tell(self) -> None:
        """Compare what is known with what was told, and wake all pages."""
        there = self.clusters()
        self._tell("clusters", {"kind": "clusters", "hub": self.fleet.hub, "clusters": there})
        self._tell("resources", {"kind": "resources", "resources": self.resources()})
        self.wake()

    def wake(self) -> None:
        """Have all pages look for news."""
        self.news.set()
        self.news = asyncio.Event()

    def _tell(self, kind: str, message: wire.Message, says: Hashable = None) -> None:
        topic = self.topics[kind]
        says = says or json.dumps(message, sort_keys=True)
        if says != topic.says:
            topic.message, topic.says, topic.version = message, says, topic.version + 1

    async def _begin(self) -> None:
        # Without a limit: each worker is asked at the same time, and a stream of events is open for each that starts.
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        workers: HubWorkers | None = None
        try:
            workers = HubWorkers.from_environment(None, None, session)
        except NoClusterError:
            await session.close()
        self._fleet = ClusterMonitor(self.store.folder, workers, self.tell, self._works)
        self._actions = Actions(self._fleet, self.store, self._log.info)
        try:
            # Whoever opens the panel does not wait for a worker that hangs, nor long for a hub.
            await self._fleet.refresh(hub_seconds=FIRST_SECONDS, look_seconds=FIRST_SECONDS / 3)
        except BaseException:
            # A page that is gone again, mostly.
            await self._close()
            raise
        self._fleet.forget_what_came_right()
        self._led = self._leads()
        self._loops = [
            asyncio.create_task(self._again(self._look_at_fleet), name="panel: fleet"),
            asyncio.create_task(self._again(self._look_at_runs), name="panel: runs"),
        ]

    async def _end(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.wait(self._loops)
        await self._close()

    async def _close(self) -> None:
        # The next page must not be told of these.
        for topic in self.topics.values():
            topic.message = topic.says = None
        fleet, self._fleet, self._actions = self.fleet, None, None
        await fleet.close()

    async def _again(self, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await look()
            except Exception:  # noqa: BLE001 - what nobody has foreseen must not leave all pages with what was an hour ago
                self._log.exception("the panel could not look at something; it is tried again")
                await asyncio.sleep(RUNS_SECONDS)

    async def _look_at_fleet(self) -> None:
        busy = self._seen_by or self.actions.tasks or self.fleet.unsettled
        with suppress(TimeoutError):
            async with asyncio.timeout(FLEET_SECONDS if busy else UNSEEN_SECONDS):
                await self._due.wait()
        self._due.clear()
        await self.fleet.refresh()
        if not self._users and not self.actions.tasks:
            # What the last user began is done.
            self._ending = asyncio.create_task(self._end_if_unused(), name="panel: end")

    async def _end_if_unused(self) -> None:
        async with self._turn:
            if self._fleet is not None and not self._users and not self.actions.tasks:
                await self._end()

    async def _look_at_runs(self) -> None:
        await self.fleet.read_desks()
        if (led := self._leads()) != self._led:
            # A notebook has started a cluster, or stopped one.
            self._led = led
            self._due.set()
        self._tell_runs(await self.runs())
        self.tell()
        await asyncio.sleep(RUNS_SECONDS)

    def _leads(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [(sign.cluster, sign.workers) for sign in self.fleet.sources.driver_statuses]

    def _tell_runs(self, page: wire.RunPage) -> None:
        # That a run has gone on for another second the page knows itself.
        said = [{**run, "seconds": 0 if run["goes_on"] else run["seconds"]} for run in page["runs"]]
        message: wire.RunsMessage = {"kind": "runs", "runs": page["runs"], "total": page["total"]}
        self._tell("runs", message, json.dumps([said, page["total"]]))


def _profile(profile: dict[str, Any], gpus: dict[str, dict[str, Any]]) -> wire.Profile:
    classes = [counts for name, counts in gpus.items() if profile["gpu_class"] in {None, name}]
    counted = bool(profile["gpus"] and classes)
    return {
        "name": profile["name"],
        "description": profile["description"],
        "ranks": profile["ranks"],
        "cpus": profile["cpus"],
        "memory": profile["memory"],
        "gpus": profile["gpus"],
        "gpu_class": profile["gpu_class"],
        "gpus_free": sum(counts["free"] for counts in classes) if counted else None,
        "gpus_total": sum(counts["total"] for counts in classes) if counted else None,
    }


def _gpu_class(name: str, counts: dict[str, Any]) -> wire.GpuClass:
    return {
        "name": name,
        "total": counts["total"],
        "free": counts["free"],
        "waiting": counts["waiting"],
        "held": [{"user": user, "count": number} for user, number in counts["held"].items()],
    }
