"""Monitors the state of the hub, the workers, the endpoints and the drivers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import aiohttp

from farandole.driver.control.mailbox import driver_statuses
from farandole.driver.endpoints.client import (
    EndpointClient,
    EndpointStatus,
    StreamStatus,
    endpoints_among,
    known,
)
from farandole.driver.workers.notices import Notice
from farandole.driver.workers.source import WORKER_NAME, HubWorkers
from farandole.driver.workers.worker import Worker
from farandole.exceptions import HubError, WorkerStartError
from farandole.server.panel.clusters import PendingAction, Server, Snapshot, WorkerAnswer, worker_state
from farandole.server.panel.wire_hub import Endpoint, EndpointStream, Hub, HubNotice
from farandole.server.worker.usage import UsageMeter

HUB_SECONDS = 30.0
WORKER_SECONDS = 5.0
SELDOM_SECONDS = 60.0
"""How many seconds to wait before requesting notices again, and GPU counts from a hub that has reported none."""


class ClusterMonitor:
    """Polls the hub, the workers, the endpoints and the status files of drivers.

    It calls ``changed`` after each update.
    """

    def __init__(
        self, store: Path, workers: HubWorkers | None, changed: Callable[[], None], pending: dict[str, PendingAction]
    ) -> None:
        self.snapshot = Snapshot(pending=pending)
        self.workers = workers
        self.gpus: dict[str, dict[str, Any]] = {}
        self.endpoints: list[Endpoint] = []
        self.notices: list[Notice] = []
        self.user: str | None = None
        self.error: str | None = None
        self._store = store
        self._changed = changed
        self._endpoint_servers: dict[str, dict[str, Any]] = {}
        """The hub's models of the servers of endpoints, by the name of the endpoint."""
        self._following: dict[str, asyncio.Task[None]] = {}
        self._refreshing = asyncio.Lock()
        self._count_gpus_at = 0.0
        self._read_notices_at = 0.0
        self._meter = UsageMeter()

    @property
    def hub(self) -> Hub | None:
        """The hub's latest state, or None if there is no hub."""
        notices = [_notice(notice) for notice in self.notices]
        return None if self.workers is None else {"user": self.user, "error": self.error, "notices": notices}

    @property
    def unsettled(self) -> bool:
        """True while a worker is starting or stopping."""
        return any(server.get("pending") for server in self.snapshot.servers.values())

    def unsure(self, cluster: str) -> str | None:
        """Return why the active runs of a cluster may be unknown, or None if all its workers have named their runs."""
        if self.workers is None:
            return None
        if self.error is not None:
            return f"its workers cannot be asked ({self.error})"
        if self.user is None:
            return "the hub has not answered yet"
        silent = next((name for name in self.snapshot.members(cluster) if name not in self.snapshot.answers), None)
        return None if silent is None else f"worker {silent} does not answer"

    async def refresh(self, *, hub_seconds: float = HUB_SECONDS, worker_seconds: float = WORKER_SECONDS) -> None:
        """Poll the hub, the workers, the endpoints and the drivers once.

        Workers that do not respond in time keep their last state. Workers and endpoints are polled at the same time,
        each for at most ``worker_seconds``.
        """
        async with self._refreshing:
            await self.read_driver_statuses()
            here = any(status.local for status in self.snapshot.driver_statuses)
            self.snapshot.here = await self._meter.sample() if here else None
            if self.workers is not None:
                try:
                    async with asyncio.timeout(hub_seconds):
                        await self._ask_hub(self.workers)
                except (HubError, aiohttp.ClientError, TimeoutError) as exc:
                    # The exception contains the hub's error message or the reason why the request failed.
                    self.error = str(exc) or "the hub does not answer"
                else:
                    self.error = None
                await asyncio.gather(
                    self._ask_workers(worker_seconds), self._ask_endpoints(self.workers, worker_seconds)
                )
        self._changed()

    def forget_resolved_failures(self) -> None:
        """Delete the errors of clusters that exist, because these may have started while the panel was not used."""
        for name in [name for name in self.snapshot.pending if self.snapshot.members(name)]:
            del self.snapshot.pending[name]

    async def read_driver_statuses(self) -> None:
        """Read the status files that drivers write about their clusters."""
        self.snapshot.record_drivers(await asyncio.to_thread(driver_statuses, self._store), time.time())

    async def worker(self, name: str) -> Worker:
        """Return the worker of this name; raise WorkerStartError if it is not ready."""
        server = self.snapshot.servers.get(name)
        if self.workers is None or server is None or not server.get("ready"):
            raise WorkerStartError(f"worker {name} is not running")
        try:
            return await self.workers.worker(name, server["url"], started=server.get("started") or "")
        except HubError as exc:
            raise WorkerStartError(f"worker {name} cannot be reached: {exc}") from exc

    async def close(self) -> None:
        """Stop polling."""
        for task in self._following.values():
            task.cancel()
        if self._following:
            await asyncio.wait(self._following.values())
        if self.workers is not None:
            await self.workers.close()

    async def _ask_hub(self, workers: HubWorkers) -> None:
        everything = await workers.client.servers()
        self._endpoint_servers = endpoints_among(everything)
        servers = {name: model for name, model in everything.items() if WORKER_NAME.match(name)}
        self.user = await workers.client.user()
        snapshot = self.snapshot
        snapshot.servers = dict(servers)
        snapshot.progress = {name: event for name, event in snapshot.progress.items() if _starts(servers.get(name))}
        snapshot.answers = {name: answer for name, answer in snapshot.answers.items() if name in servers}
        for name, server in servers.items():
            if _starts(server) and name not in self._following:
                self._following[name] = asyncio.create_task(self._follow(workers, name), name=f"progress of {name}")
        await self._ask_seldom(workers, time.monotonic())

    async def _ask_seldom(self, workers: HubWorkers, now: float) -> None:
        if now >= self._read_notices_at:
            # If only this request fails, the clusters are still known. The next refresh repeats it.
            with suppress(HubError, aiohttp.ClientError):
                self.notices = await workers.client.notices()
                self._read_notices_at = now + SELDOM_SECONDS
        if now >= self._count_gpus_at:
            self.gpus = await workers.gpus()
            self._count_gpus_at = 0.0 if self.gpus else now + SELDOM_SECONDS

    async def _follow(self, workers: HubWorkers, name: str) -> None:
        """Record the progress events that the hub sends while this worker is starting."""
        try:
            async with aclosing(workers.client.progress(name)) as events:
                async for event in events:
                    self.snapshot.progress[name] = event
                    self._note_end(name, event)
                    self._changed()
                    if event.get("ready") or event.get("failed"):
                        break
        except (HubError, TimeoutError):
            # The start ended before this request, or the hub is offline. The next refresh records the result.
            return
        finally:
            del self._following[name]

    def _note_end(self, name: str, event: Mapping[str, Any]) -> None:
        """Record why a worker failed to start, and delete this error when a worker of the cluster starts successfully.

        This also covers workers that were started from a notebook.
        """
        cluster = name.rpartition("-w")[0]
        action = self.snapshot.pending.get(cluster)
        if event.get("failed") and (action is None or not action.kind):
            error = f"{event.get('message', 'The hub gives no reason')} (worker {name} did not start)"
            self.snapshot.pending[cluster] = PendingAction(error=error)
        elif event.get("ready") and action is not None and not action.kind:
            del self.snapshot.pending[cluster]

    async def _ask_workers(self, seconds: float) -> None:
        ready = [name for name, server in self.snapshot.servers.items() if server.get("ready")]
        await asyncio.gather(*(self._ask_worker(name, seconds) for name in ready))

    async def _ask_worker(self, name: str, seconds: float) -> None:
        try:
            worker = await self.worker(name)
            async with asyncio.timeout(seconds):
                answer = await worker.look()
        except (WorkerStartError, TimeoutError):
            return
        self.snapshot.answers[name] = WorkerAnswer(status=answer, time=time.time())

    async def _ask_endpoints(self, workers: HubWorkers, seconds: float) -> None:
        client = EndpointClient(workers.client)
        asked = (_ask_endpoint(client, *one, seconds) for one in sorted(self._endpoint_servers.items()))
        self.endpoints = await asyncio.gather(*asked)


async def _ask_endpoint(client: EndpointClient, name: str, server: dict[str, Any], seconds: float) -> Endpoint:
    try:
        async with asyncio.timeout(seconds):
            status = await client.status_of(name, server)
    except TimeoutError:
        status = known(name, server)
    return _endpoint(status, server)


def _endpoint(status: EndpointStatus, server: Server) -> Endpoint:
    return {
        "name": status.name,
        "url": status.url,
        "model": status.model or None,
        "version": status.version or None,
        "command": " ".join(status.command) or None,
        "image": status.image or None,
        "state": worker_state(server),
        "requests_per_second": status.requests_per_second,
        "errors": status.errors,
        "p95_ms": status.p95_ms,
        "stream": _stream(status.stream),
    }


def _stream(status: StreamStatus | None) -> EndpointStream | None:
    if status is None:
        return None
    return {
        "source": status.source,
        "target": status.target,
        "lag": status.lag,
        "records_per_second": status.records_per_second,
        "dead_letters": status.dead_letters,
        "problem": status.problem or None,
    }


def _notice(notice: Notice) -> HubNotice:
    return {"by": notice.by, "time": notice.at, "text": notice.text, "servers": list(notice.servers)}


def _starts(server: Server | None) -> bool:
    return server is not None and server.get("pending") == "spawn"
