"""Sends updates to one open page, and tracks the page's subscriptions and the updates that the page has received."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from farandole.exceptions import FarandoleError, RunNotFoundError, UsageError
from farandole.protocol import is_rank
from farandole.server.panel import wire
from farandole.server.panel.files import read_log
from farandole.server.panel.pages.following import Following
from farandole.server.panel.panel import Panel
from farandole.server.panel.problems import problem

BEAT_SECONDS = 15.0
POLL_SECONDS = 1.0
WORKER_LOG_SECONDS = 2.0
MAX_SUBSCRIPTIONS = 50
LARGEST_OFFSET = 2**62

Send: TypeAlias = Callable[[wire.Message], Awaitable[None]]
"""A function that sends a message and returns when the connection can accept the next message."""


class Page:
    """Sends updates to a page, one message at a time.

    A slow page does not delay other pages. When the page can accept a message again, it receives the newest state and
    skips outdated messages. Logs are sent without gaps.
    """

    def __init__(self, panel: Panel, send: Send) -> None:
        self._panel = panel
        self._send = send
        self._runs: dict[str, RunSubscription] = {}
        self._followed: dict[str, Following] = {}
        self._logs: dict[tuple[str, int, str], LogSubscription] = {}
        self._sent: dict[str, Hashable] = {}
        self._beaten = time.monotonic()
        self._woken = asyncio.Event()

    def subscribe(self, wanted: Mapping[str, Any]) -> None:
        """Replace the page's subscriptions with those in a ``Watch`` message; raise UsageError if it is invalid."""
        runs, followed, by_rank, logs = checked(wanted)
        self._panel.set_visible(self, visible=wanted["seen"])
        # A page that unsubscribes from a run deletes the run's data, so a new subscription must send all data again.
        kept = {run: one for run, one in self._runs.items() if one.by_rank == by_rank}
        self._runs = {run: kept.get(run) or RunSubscription(by_rank) for run in runs}
        self._followed = {run: self._followed.get(run) or Following(run) for run in followed}
        asked = {(log["run"] or "", log["rank"] or 0, log["worker"] or ""): log["offset"] for log in logs}
        # Each message lists all logs that the page shows. Logs that are already being sent continue at their position.
        for key in self._logs.keys() - asked.keys():
            self._logs[key].cancel()
        self._logs = {key: self._logs.get(key) or LogSubscription(offset) for key, offset in asked.items()}
        self._woken.set()

    async def send_updates(self) -> None:
        """Send updates until this task is cancelled."""
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
            await self._send_news()
            more = await self._send_logs()
            if time.monotonic() - self._beaten > BEAT_SECONDS:
                await self._send({"kind": "beat", "time": time.time()})
                self._beaten = time.monotonic()
            if not more:
                await _first(POLL_SECONDS, changed, self._woken)

    async def refuse(self, error: FarandoleError) -> None:
        """Report to the page that a request over the stream has failed."""
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

    async def _send_news(self) -> None:
        for following in list(self._followed.values()):
            # The list of runs says that a run was deleted, so this is no problem of the page.
            with suppress(RunNotFoundError):
                message = await asyncio.to_thread(following.news, self._panel)
                if message is not None:
                    await self._send(message)

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
        """Send the next chunk of each log, and return whether any log has more data."""
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
        # If the page has unsubscribed, nothing else retrieves the exception, and asyncio would log a warning.
        if not request.cancelled():
            request.exception()
        self._woken.set()

    def _chunk_of_worker(self, worker: str, subscription: LogSubscription) -> wire.LogPart | None:
        """Return the worker's response to the last request, or None if there is none. Send a new request if it is due.

        Requests run in separate tasks, so that a worker that hangs does not block the stream.
        """
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
            # The log is shorter than before because the server was restarted, so read it from the beginning.
            subscription.offset, subscription.due = 0, 0.0
            return None
        return chunk


@dataclass
class RunSubscription:
    """A run that a page shows, and the version of the run's view that the page has received."""

    by_rank: bool
    sent: Hashable = None


@dataclass
class LogSubscription:
    """A log that a page shows, and the position up to which the page has received the log."""

    offset: int
    begun: bool = False
    refused: bool = False
    due: float = 0.0
    request: asyncio.Task[wire.LogPart] | None = None

    def cancel(self) -> None:
        """Cancel the pending request to the worker, if any."""
        if self.request is not None:
            self.request.cancel()


async def worker_log(panel: Panel, name: str, offset: int) -> wire.LogPart:
    """Return a chunk of the log of a worker's server; raise WorkerStartError if the server does not respond."""
    chunk = await (await panel.monitor.worker(name)).log(offset)
    return cast("wire.LogPart", {"run": None, "rank": None, "worker": name, **chunk})


async def _first(seconds: float, *events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def checked(wanted: Mapping[str, Any]) -> tuple[list[str], list[str], bool, list[wire.LogRequest]]:
    """Return the content of a ``Watch`` message; raise UsageError if it is invalid.

    The content is the runs, the followed runs, the ``by_rank`` flag and the logs.
    """
    try:
        runs, by_rank, logs = wanted["runs"], wanted["by_rank"], [_log(log) for log in wanted["logs"]]
        # A page that an earlier release has loaded follows no runs.
        seen, followed = wanted["seen"], wanted.get("followed", [])
    except (KeyError, TypeError) as exc:
        raise UsageError(f"this is not a valid subscription: {exc!r}") from exc
    flags = isinstance(by_rank, bool) and isinstance(seen, bool)
    ids = _are_ids(runs) and _are_ids(followed)
    if not flags or not ids or max(len(runs) + len(logs), len(followed)) > MAX_SUBSCRIPTIONS:
        raise UsageError(
            f"a page may subscribe to at most {MAX_SUBSCRIPTIONS} runs and logs, and follow as many runs; runs must be "
            "ids, and by_rank and seen must be true or false"
        )
    return runs, followed, by_rank, logs


def _are_ids(runs: Any) -> bool:
    return isinstance(runs, list) and all(isinstance(run, str) for run in runs)


def _log(log: Mapping[str, Any]) -> wire.LogRequest:
    run, rank, worker, offset = log["run"], log["rank"], log["worker"], log["offset"]
    of_rank = isinstance(run, str) and is_rank(rank) and worker is None
    of_worker = isinstance(worker, str) and run is None and rank is None
    if not (of_rank or of_worker) or type(offset) is not int or abs(offset) > LARGEST_OFFSET:
        raise UsageError("a log needs a run and a rank, or a worker, and an offset in bytes")
    return {"run": run, "rank": rank, "worker": worker, "offset": offset}
