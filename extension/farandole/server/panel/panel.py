"""Keeps the panel's state, which all open pages of a notebook server share."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp

from farandole.driver.workers.source import HubWorkers
from farandole.exceptions import NoClusterError
from farandole.quotas.home import HomeUse, read_use
from farandole.runs.store import RunStore
from farandole.server.panel import wire, wire_hub, wire_routes
from farandole.server.panel.actions import Actions
from farandole.server.panel.charts import Charts
from farandole.server.panel.cluster_monitor import ClusterMonitor
from farandole.server.panel.clusters import PendingAction, clusters
from farandole.server.panel.runs import RunIndex
from farandole.server.panel.snapshots.jobs import Jobs
from farandole.server.panel.snapshots.reader import SnapshotReader
from farandole.server.panel.table.table import Table
from farandole.server.worker.routes import backends
from farandole.snapshots.contents import SnapshotContents

REFRESH_SECONDS = 3.0
HIDDEN_REFRESH_SECONDS = 30.0
"""Polling interval in seconds while no page shows the panel.

Every open JupyterLab page contains the panel, but most pages hide it, and hidden panels must not burden the hub.
"""
RUNS_SECONDS = 1.0
FIRST_SECONDS = 3.0
"""Time limit for the hub's response when a panel is opened, in seconds. The page waits for this response."""
PROFILE_KEYS = "name", "description", "ranks", "cpus", "memory", "gpus", "gpu_class"


@dataclass
class Topic:
    """The newest message of one kind. ``version`` increases whenever the content of the message changes."""

    message: wire.Message | None = None
    version: int = 0
    content: Hashable = None


class Panel:
    """The state that all pages of a notebook server show. It is updated only while the panel is `used`."""

    def __init__(self, *, root: Path, log: logging.Logger) -> None:
        self.store = RunStore()
        self.index = RunIndex(self.store.folder, root)
        self.charts = Charts()
        self.table = Table(self.index, self.charts)
        self.snapshots = SnapshotReader(SnapshotContents())
        self.snapshot_jobs = Jobs()
        self.topics = {kind: Topic() for kind in ("clusters", "endpoints", "resources", "runs")}
        self.changed = asyncio.Event()
        """An event that is set on the next change and then replaced with a new event."""
        # The hub passes the profiles and limits in the environment of a notebook server.
        self._profiles = json.loads(os.environ.get("FARANDOLE_PROFILES") or "[]")
        self._limits = json.loads(os.environ.get("FARANDOLE_LIMITS") or "{}")
        self._backends = backends()
        self._home: HomeUse | None = None
        self._log = log
        self._users = 0
        self._visible_pages: set[object] = set()
        self._refresh_now = asyncio.Event()
        """Set this event to poll the hub and the workers immediately."""
        self._led: Sequence[tuple[str, Sequence[str]]] = ()
        # This lock is held while the monitor is being started or closed, so that only one page can do this at a time.
        self._lifecycle = asyncio.Lock()
        self._pending: dict[str, PendingAction] = {}
        """Pending and failed actions by cluster. They are kept for the next page when no page uses the panel."""
        self._loops: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._monitor: ClusterMonitor | None = None
        self._actions: Actions | None = None

    @property
    def monitor(self) -> ClusterMonitor:
        """The monitor of the hub, the workers and the drivers. It exists only while the panel is used."""
        assert self._monitor is not None
        return self._monitor

    @property
    def actions(self) -> Actions:
        """The actions on clusters and runs. They are available only while the panel is used."""
        assert self._actions is not None
        return self._actions

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Keep the state updated during this context, and afterwards until the last action is done.

        Several contexts can be open at the same time, usually one for each page.
        """
        async with self._lifecycle:
            if self._monitor is None:
                await self._begin()
            self._users += 1
        try:
            yield
        finally:
            async with self._lifecycle:
                self._users -= 1
                if not self._users and not self.actions.tasks:
                    await self._end()
                elif not self._users:
                    self._refresh_now.set()

    async def state(self) -> wire_routes.State:
        """Return the complete state, which a page needs when it is opened."""
        resources, page = self.resources(), await self.runs()
        return {
            "hub": self.monitor.hub,
            "resources": resources,
            "clusters": self.clusters(),
            "endpoints": self.monitor.endpoints,
            "runs": page,
        }

    def clusters(self) -> list[wire.Cluster]:
        """Return the latest state of all clusters."""
        return clusters(self.monitor.snapshot, self.index.notebook)

    async def runs(self) -> wire_routes.RunPage:
        """Return the newest runs and all active runs."""
        return await asyncio.to_thread(self.index.newest, self.monitor.snapshot.active_runs())

    def resources(self) -> wire_hub.Resources:
        """Return the profiles, GPUs, limits and backends that are available for clusters."""
        gpus = self.monitor.gpus
        return {
            "profiles": [_profile(one, gpus) for one in self._profiles],
            "gpus": [_gpu_class(name, counts) for name, counts in gpus.items()],
            "quota": {
                "workers": len(self.monitor.snapshot.servers),
                "workers_max": self._limits.get("workers_per_user"),
                "ranks_per_worker_max": self._limits.get("ranks_per_worker"),
            },
            "home": None if self._home is None else _home(self._home),
            "backends": self._backends,
        }

    def set_visible(self, page: object, *, visible: bool) -> None:
        """Record whether a page currently shows the panel."""
        if not visible:
            self._visible_pages.discard(page)
        elif page not in self._visible_pages:
            self._visible_pages.add(page)
            self._refresh_now.set()

    def publish(self) -> None:
        """Update the messages about clusters, endpoints and resources, and notify the pages."""
        there = self.clusters()
        self._publish("clusters", {"kind": "clusters", "hub": self.monitor.hub, "clusters": there})
        self._publish("endpoints", {"kind": "endpoints", "endpoints": self.monitor.endpoints})
        self._publish("resources", {"kind": "resources", "resources": self.resources()})
        self.notify_pages()

    def notify_pages(self) -> None:
        """Wake up the streams of all pages, which then send new updates."""
        self.changed.set()
        self.changed = asyncio.Event()

    def _publish(self, kind: str, message: wire.Message, content: Hashable = None) -> None:
        topic = self.topics[kind]
        content = content or json.dumps(message, sort_keys=True)
        if content != topic.content:
            topic.message, topic.content, topic.version = message, content, topic.version + 1

    async def _begin(self) -> None:
        # The number of connections is not limited, because all workers are polled concurrently and each starting worker
        # needs an event stream.
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        workers: HubWorkers | None = None
        try:
            workers = HubWorkers.from_environment(None, None, session)
        except NoClusterError:
            await session.close()
        self._monitor = ClusterMonitor(self.store.folder, workers, self.publish, self._pending)
        self._actions = Actions(self._monitor, self.store, self._log.info)
        try:
            # The time limits are short because the page waits for this refresh.
            await self._monitor.refresh(hub_seconds=FIRST_SECONDS, worker_seconds=FIRST_SECONDS / 3)
        except BaseException:
            # The usual reason is a cancellation, because the page was closed.
            await self._close()
            raise
        self._home = await asyncio.to_thread(read_use)
        self._monitor.forget_resolved_failures()
        self._led = self._led_clusters()
        self._loops = [
            asyncio.create_task(self._repeat(self._refresh_clusters), name="panel: clusters"),
            asyncio.create_task(self._repeat(self._refresh_runs), name="panel: runs"),
        ]

    async def _end(self) -> None:
        for task in self._loops:
            task.cancel()
        await asyncio.wait(self._loops)
        await self._close()

    async def _close(self) -> None:
        # The next page must not receive outdated messages.
        for topic in self.topics.values():
            topic.message = topic.content = None
        monitor, self._monitor, self._actions = self.monitor, None, None
        await monitor.close()

    async def _repeat(self, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await refresh()
            except Exception:  # noqa: BLE001 - after an unexpected error, pages would show an old state for ever
                self._log.exception("the panel could not be refreshed; it will try again")
                await asyncio.sleep(RUNS_SECONDS)

    async def _refresh_clusters(self) -> None:
        busy = self._visible_pages or self.actions.tasks or self.monitor.unsettled
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_SECONDS if busy else HIDDEN_REFRESH_SECONDS):
                await self._refresh_now.wait()
        self._refresh_now.clear()
        self._home = await asyncio.to_thread(read_use)
        await self.monitor.refresh()
        if not self._users and not self.actions.tasks:
            # A separate task is necessary, because `_end` cancels the task that runs this method.
            self._ending = asyncio.create_task(self._end_if_unused(), name="panel: end")

    async def _end_if_unused(self) -> None:
        async with self._lifecycle:
            if self._monitor is not None and not self._users and not self.actions.tasks:
                await self._end()

    async def _refresh_runs(self) -> None:
        await self.monitor.read_driver_statuses()
        if (led := self._led_clusters()) != self._led:
            # A notebook has started, scaled or stopped a cluster.
            self._led = led
            self._refresh_now.set()
        self._publish_runs(await self.runs())
        self.publish()
        await asyncio.sleep(RUNS_SECONDS)

    def _led_clusters(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [(status.cluster, status.workers) for status in self.monitor.snapshot.driver_statuses]

    def _publish_runs(self, page: wire_routes.RunPage) -> None:
        # The page counts the elapsed time of active runs itself, so a change of this time alone is not sent.
        said = [{**run, "seconds": 0 if run["goes_on"] else run["seconds"]} for run in page["runs"]]
        message: wire.RunsMessage = {"kind": "runs", "runs": page["runs"], "total": page["total"]}
        self._publish("runs", message, json.dumps([said, page["total"]]))


def _profile(profile: dict[str, Any], gpus: dict[str, dict[str, Any]]) -> wire_hub.Profile:
    classes = [counts for name, counts in gpus.items() if profile["gpu_class"] in {None, name}]
    counted = bool(profile["gpus"] and classes)
    known = {key: profile[key] for key in PROFILE_KEYS}
    free = {f"gpus_{key}": sum(counts[key] for counts in classes) if counted else None for key in ("free", "total")}
    return cast("wire_hub.Profile", {**known, **free})


def _home(use: HomeUse) -> wire_hub.Home:
    return {"used": use.used, "limit": use.limit, "free": use.free, "warning": use.warning or None}


def _gpu_class(name: str, counts: dict[str, Any]) -> wire_hub.GpuClass:
    return {
        "name": name,
        "total": counts["total"],
        "free": counts["free"],
        "waiting": counts["waiting"],
        "held": [{"user": user, "count": number} for user, number in counts["held"].items()],
    }
