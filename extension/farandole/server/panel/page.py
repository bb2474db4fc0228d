"""The stream of one open page: its subscriptions, and the updates it has received."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from farandole.exceptions import FarandoleError, RunNotFoundError, UsageError
from farandole.protocol import is_rank
from farandole.server.panel import wire
from farandole.server.panel.files import read_log
from farandole.server.panel.panel import Panel
from farandole.server.panel.problems import problem

BEAT_SECONDS = 15.0
POLL_SECONDS = 1.0
WORKER_LOG_SECONDS = 2.0
MAX_SUBSCRIPTIONS = 50
LARGEST_OFFSET = 2**62

Send: TypeAlias = Callable[[wire.Message], Awaitable[None]]
"""Sends a message, and returns when the connection can take the next one."""


class Page:
    """Sends a page its updates, one message at a time.

    A slow page delays only itself: when it has taken a message, it gets the newest message of each kind, and misses
    those in between.
    """

    def __init__(self, panel: Panel, send: Send) -> None:
        self._panel = panel
        self._send = send
        self._runs: dict[str, RunSubscription] = {}
        self._logs: dict[tuple[str, int, str], LogSubscription] = {}
        self._sent: dict[str, Hashable] = {}
        self._beaten = time.monotonic()
        self._woken = asyncio.Event()

    def subscribe(self, wanted: Mapping[str, Any]) -> None:
        """Replace the page's subscriptions by those of a ``Watch`` message; raise UsageError if it is invalid."""
        runs, by_rank, logs = checked(wanted)
        self._panel.set_visible(self, visible=wanted["seen"])
        # A page that unsubscribes from a run drops its data, so a new subscription starts from the beginning.
        kept = {run: one for run, one in self._runs.items() if one.by_rank == by_rank}
        self._runs = {run: kept.get(run) or RunSubscription(by_rank) for run in runs}
        asked = {(log["run"] or "", log["rank"] or 0, log["worker"] or ""): log["offset"] for log in logs}
        # A page repeats its current logs in each message; those continue from where they are.
        for key in self._logs.keys() - asked.keys():
            self._logs[key].cancel()
        self._logs = {key: self._logs.get(key) or LogSubscription(offset) for key, offset in asked.items()}
        self._woken.set()

    async def send_updates(self) -> None:
        """Send updates until cancelled."""
        try:
            await self._send_for_ever()
        finally:
            self._panel.set_visible(self, visible=False)
            for subscription in self._logs.values():
                subscription.cancel()

    async def _send_for_ever(self) -> None:
        while True:
            changed = self._panel.changed
            self._woken.clear()
            await self._send_topics()
            await self._send_runs()
            more = await self._send_logs()
            if time.monotonic() - self._beaten > BEAT_SECONDS:
                await self._send({"kind": "beat", "time": time.time()})
                self._beaten = time.monotonic()
            if not more:
                await _first(POLL_SECONDS, changed, self._woken)

    async def refuse(self, error: FarandoleError) -> None:
        """Tell the page that a request over the stream has failed."""
        await self._send({"kind": "problem", "problem": problem(error)})

    async def _send_topics(self) -> None:
        for kind, topic in self._panel.topics.items():
            version, message = topic.version, topic.message
            if message is not None and self._sent.get(kind) != version:
                await self._send(message)
                self._sent[kind] = version

    async def _send_runs(self) -> None:
        for run, subscription in dict(self._runs).items():
            try:
                version, message = await asyncio.to_thread(self._update_of, run, subscription)
            except RunNotFoundError as exc:
                if subscription.sent != "unknown":
                    subscription.sent = "unknown"
                    await self.refuse(exc)
                continue
            if message is not None:
                await self._send(message)
                subscription.sent = version

    def _update_of(self, run: str, subscription: RunSubscription) -> tuple[Hashable, wire.Message | None]:
        panel = self._panel
        info = panel.index.find(run)
        summary = panel.index.summary(info, panel.monitor.snapshot.active_runs())
        version = (summary["goes_on"], *panel.charts.version(info, by_rank=subscription.by_rank))
        if subscription.sent == version:
            return version, None
        chart = panel.charts.of(info, summary, by_rank=subscription.by_rank)
        return version, {"kind": "run", "id": run, "summary": summary, "view": chart.view, "sampled": chart.sampled}

    async def _send_logs(self) -> bool:
        """Send the next chunk of each log; return whether any log has more."""
        more = False
        for (run, rank, worker), subscription in dict(self._logs).items():
            try:
                chunk = await self._next_chunk(run, rank, worker, subscription)
            except FarandoleError as exc:
                if not subscription.refused:
                    subscription.refused = True
                    await self.refuse(exc)
                continue
            if chunk is not None:
                await self._send({"kind": "log", "part": chunk})
                subscription.offset, subscription.begun = chunk["next"], True
                more = more or chunk["next"] < chunk["size"]
        return more

    async def _next_chunk(self, run: str, rank: int, worker: str, subscription: LogSubscription) -> wire.LogPart | None:
        if worker:
            chunk = self._chunk_of_worker(worker, subscription)
        else:
            chunk = await asyncio.to_thread(lambda: read_log(self._panel.index.find(run), rank, subscription.offset))
        return chunk if chunk and (chunk["text"] or not subscription.begun) else None

    def _answered(self, request: asyncio.Task[wire.LogPart]) -> None:
        # Retrieving the exception prevents a warning if the page has unsubscribed meanwhile.
        if not request.cancelled():
            request.exception()
        self._woken.set()

    def _chunk_of_worker(self, worker: str, subscription: LogSubscription) -> wire.LogPart | None:
        """Return a worker's answer, if any. The request runs in a task, so that a worker that hangs blocks nothing."""
        if subscription.request is None:
            if time.monotonic() >= subscription.due:
                subscription.due = time.monotonic() + WORKER_LOG_SECONDS
                subscription.request = asyncio.create_task(worker_log(self._panel, worker, subscription.offset))
                subscription.request.add_done_callback(self._answered)
            return None
        if not subscription.request.done():
            return None
        answer, subscription.request = subscription.request, None
        chunk = answer.result()
        if chunk["size"] < subscription.offset:
            # The server was restarted, so its log starts again from the beginning.
            subscription.offset, subscription.due = 0, 0.0
            return None
        return chunk


@dataclass
class RunSubscription:
    """A run that a page shows, and the version that it has received."""

    by_rank: bool
    sent: Hashable = None


@dataclass
class LogSubscription:
    """A log that a page shows, and the position up to which it has received it."""

    offset: int
    begun: bool = False
    refused: bool = False
    due: float = 0.0
    request: asyncio.Task[wire.LogPart] | None = None

    def cancel(self) -> None:
        """Cancel the request to the worker, if any."""
        if self.request is not None:
            self.request.cancel()


async def worker_log(panel: Panel, name: str, offset: int) -> wire.LogPart:
    """Return a chunk of the log of a worker's server; raise WorkerStartError if it does not answer."""
    chunk = await (await panel.monitor.worker(name)).log(offset)
    return cast("wire.LogPart", {"run": None, "rank": None, "worker": name, **chunk})


async def _first(seconds: float, *events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def checked(wanted: Mapping[str, Any]) -> tuple[list[str], bool, list[wire.LogRequest]]:
    """Return the runs, ``by_rank`` and the logs of a ``Watch`` message; raise UsageError if it is invalid."""
    try:
        runs, by_rank, logs = wanted["runs"], wanted["by_rank"], [_log(log) for log in wanted["logs"]]
        seen = wanted["seen"]
    except (KeyError, TypeError) as exc:
        raise UsageError(f"this is not a valid subscription: {exc!r}") from exc
    flags = isinstance(by_rank, bool) and isinstance(seen, bool)
    ids = isinstance(runs, list) and all(isinstance(run, str) for run in runs)
    if not flags or not ids or len(runs) + len(logs) > MAX_SUBSCRIPTIONS:
        raise UsageError(f"a page may subscribe to at most {MAX_SUBSCRIPTIONS} runs and logs, by their ids")
    return runs, by_rank, logs


def _log(log: Mapping[str, Any]) -> wire.LogRequest:
    run, rank, worker, offset = log["run"], log["rank"], log["worker"], log["offset"]
    of_rank = isinstance(run, str) and is_rank(rank) and worker is None
    of_worker = isinstance(worker, str) and run is None and rank is None
    if not (of_rank or of_worker) or type(offset) is not int or abs(offset) > LARGEST_OFFSET:
        raise UsageError("a log needs a run and a rank, or a worker, and an offset in bytes")
    return {"run": run, "rank": rank, "worker": worker, "offset": offset}
