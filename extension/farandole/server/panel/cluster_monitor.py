"""The hub and the workers as they were last heard of."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import aiohttp

from farandole.driver.control.mailbox import driver_statuses
from farandole.driver.workers.source import WORKER_NAME, HubWorkers
from farandole.driver.workers.worker import Worker
from farandole.exceptions import HubError, WorkerStartError
from farandole.server.panel import wire
from farandole.server.panel.clusters import Look, Server, Sources, Work
from farandole.server.worker.usage import UsageMeter

HUB_SECONDS = 30.0
LOOK_SECONDS = 5.0
UNCOUNTED_SECONDS = 60.0
"""How long a hub is not asked again that counts no GPUs."""


class ClusterMonitor:
    """Asks the hub, the workers and the desks of drivers, and keeps what they said; ``changed`` is called with news."""

    def __init__(
        self, store: Path, workers: HubWorkers | None, changed: Callable[[], None], works: dict[str, Work]
    ) -> None:
        self.sources = Sources(works=works)
        self.workers = workers
        self.gpus: dict[str, dict[str, Any]] = {}
        self.user: str | None = None
        self.error: str | None = None
        self._store = store
        self._changed = changed
        self._following: dict[str, asyncio.Task[None]] = {}
        self._refreshing = asyncio.Lock()
        self._count_gpus_at = 0.0
        self._meter = UsageMeter()

    @property
    def hub(self) -> wire.Hub | None:
        """The hub as it was last heard of; None where there is none."""
        return None if self.workers is None else {"user": self.user, "error": self.error}

    @property
    def unsettled(self) -> bool:
        """Whether a worker starts or stops."""
        return any(server.get("pending") for server in self.sources.servers.values())

    async def refresh(self, *, hub_seconds: float = HUB_SECONDS, look_seconds: float = LOOK_SECONDS) -> None:
        """Ask everybody once; who does not answer in time stays as it was."""
        async with self._refreshing:
            await self.read_desks()
            here = any(sign.local for sign in self.sources.driver_statuses)
            self.sources.here = await self._meter.sample() if here else None
            if self.workers is not None:
                try:
                    async with asyncio.timeout(hub_seconds):
                        await self._ask_hub(self.workers)
                except (HubError, aiohttp.ClientError, TimeoutError) as exc:
                    # The hub's own reason, or an answer of it that broke off.
                    self.error = str(exc) or "the hub does not answer"
                else:
                    self.error = None
                await self._look_at_workers(look_seconds)
        self._changed()

    def forget_what_came_right(self) -> None:
        """Forget failures of clusters that are there: who looks again was not told how it went on."""
        for name in [name for name in self.sources.works if self.sources.members(name)]:
            del self.sources.works[name]

    async def read_desks(self) -> None:
        """Read what drivers say of the clusters that they lead."""
        self.sources.driver_statuses = await asyncio.to_thread(driver_statuses, self._store)

    async def worker(self, name: str) -> Worker:
        """Return a worker that is ready; raises WorkerStartError where there is none."""
        server = self.sources.servers.get(name)
        if self.workers is None or server is None or not server.get("ready"):
            raise WorkerStartError(f"there is no worker {name} that runs")
        return await self.workers.worker(name, server["url"])

    async def close(self) -> None:
        """Ask nobody any more."""
        for task in self._following.values():
            task.cancel()
        if self._following:
            await asyncio.wait(self._following.values())
        if self.workers is not None:
            await self.workers.close()

    async def _ask_hub(self, workers: HubWorkers) -> None:
        servers = {name: model for name, model in (await workers.client.servers()).items() if WORKER_NAME.match(name)}
        self.user = await workers.client.user()
        sources = self.sources
        sources.servers = dict(servers)
        sources.progress = {name: event for name, event in sources.progress.items() if _starts(servers.get(name))}
        sources.looks = {name: look for name, look in sources.looks.items() if name in servers}
        for name, server in servers.items():
            if _starts(server) and name not in self._following:
                self._following[name] = asyncio.create_task(self._follow(workers, name), name=f"progress of {name}")
        if time.monotonic() >= self._count_gpus_at:
            self.gpus = await workers.gpus()
            self._count_gpus_at = 0.0 if self.gpus else time.monotonic() + UNCOUNTED_SECONDS

    async def _follow(self, workers: HubWorkers, name: str) -> None:
        """Note the hub's events of a start until it has ended."""
        try:
            async with aclosing(workers.client.progress(name)) as events:
                async for event in events:
                    self.sources.progress[name] = event
                    self._note_end(name, event)
                    self._changed()
                    if event.get("ready") or event.get("failed"):
                        break
        except (HubError, TimeoutError):
            # It has ended before it was asked for, or the hub has: the next look tells.
            return
        finally:
            del self._following[name]

    def _note_end(self, name: str, event: Mapping[str, Any]) -> None:
        """Note why a start has failed, that of a notebook too, until another of the same cluster succeeds."""
        cluster = name.rpartition("-w")[0]
        work = self.sources.works.get(cluster)
        if event.get("failed") and (work is None or not work.kind):
            error = f"worker {name} failed to start. The hub says: {event.get('message', 'nothing')}"
            self.sources.works[cluster] = Work(error=error)
        elif event.get("ready") and work is not None and not work.kind:
            del self.sources.works[cluster]

    async def _look_at_workers(self, seconds: float) -> None:
        ready = [name for name, server in self.sources.servers.items() if server.get("ready")]
        await asyncio.gather(*(self._look_at(name, seconds) for name in ready))

    async def _look_at(self, name: str, seconds: float) -> None:
        try:
            worker = await self.worker(name)
            async with asyncio.timeout(seconds):
                look = await worker.look()
        except (WorkerStartError, TimeoutError):
            return
        self.sources.looks[name] = Look(look=look, time=time.time())


def _starts(server: Server | None) -> bool:
    return server is not None and server.get("pending") == "spawn"
