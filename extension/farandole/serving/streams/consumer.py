"""Scores the records of a stream, one batch after the other, until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Gauge

from farandole.exceptions import StreamError
from farandole.serving.statistics import RECENT_SECONDS
from farandole.serving.streams.log import ConflictError, Log, Output, UnavailableError
from farandole.serving.streams.scorer import Scorer
from farandole.streams.address import StreamAddress

SHORTEST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
STANDBY_SECONDS = 2.0
"""A consumer whose outputs were refused waits until no other one has appended outputs for this time."""
RECORDS = Counter("farandole_endpoint_records", "Records of streams, by outcome: scored or dead_letter.", ["outcome"])
LAG = Gauge("farandole_endpoint_records_lag", "Records that wait in the source.")
_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Second:
    second: int
    scored: int = 0


class StreamFigures:
    """What an endpoint says of its stream. ``clock`` is a monotonic clock."""

    def __init__(
        self, source: StreamAddress, target: StreamAddress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._target = target
        self._clock = clock
        self._started = clock()
        self._seconds: deque[_Second] = deque(maxlen=RECENT_SECONDS)
        self._dead_letters = 0
        self.lag: int | None = None
        self.problem = ""

    def add(self, outputs: Sequence[Output], waiting: int | None) -> None:
        """Add records that have outputs. ``waiting`` records are left in the source, if this is known."""
        dead = sum(bool(one.error) for one in outputs)
        now = int(self._clock())
        if not self._seconds or self._seconds[-1].second != now:
            self._seconds.append(_Second(second=now))
        self._seconds[-1].scored += len(outputs) - dead
        self._dead_letters += dead
        self.lag = waiting
        RECORDS.labels(outcome="scored").inc(len(outputs) - dead)
        RECORDS.labels(outcome="dead_letter").inc(dead)
        LAG.set(waiting or 0)

    def status(self) -> dict[str, Any]:
        """Return the figures for the endpoint's status. The rate is that of the last minute, or since the start."""
        now = self._clock()
        recent = sum(one.scored for one in self._seconds if one.second > int(now) - RECENT_SECONDS)
        return {
            "source": str(self._source),
            "target": str(self._target),
            "lag": self.lag,
            "records_per_second": recent / min(RECENT_SECONDS, max(1.0, now - self._started)),
            "dead_letters": self._dead_letters,
            "problem": self.problem,
        }


class Consumer:
    """Scores records until it is cancelled. After each error it begins again where the outputs end."""

    def __init__(
        self, connect: Callable[[], Log], scorer: Scorer, figures: StreamFigures, used: Callable[[], None]
    ) -> None:
        """Store what the consumer needs. ``used`` is called after each batch, so that the hub sees activity."""
        self._connect = connect
        self._scorer = scorer
        self._figures = figures
        self._used = used
        self._pause = SHORTEST_PAUSE
        self._refused = False
        """Whether the last outputs could not be appended."""

    async def run(self) -> None:
        """Score records until this is cancelled."""
        while True:
            try:
                async with self._connect() as log:
                    await self._follow(log)
            except (UnavailableError, StreamError) as exc:
                self._failed(str(exc))
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _follow(self, log: Log) -> None:
        while True:
            await log.seek()
            if not self._refused:
                self._figures.problem = ""
            try:
                while True:
                    await self._score(log)
            except ConflictError:
                self._failed("another endpoint scores these records; this one continues when the other one stops")
                await _other_is_idle(log)

    async def _score(self, log: Log) -> None:
        batch = await log.read()
        self._figures.lag = None if batch.waiting is None else batch.waiting + len(batch.records)
        outputs = await self._scorer.score(batch.records)
        self._refused = True
        await log.append(outputs)
        self._refused, self._figures.problem = False, ""
        self._figures.add(outputs, batch.waiting)
        self._pause = SHORTEST_PAUSE
        self._used()

    def _failed(self, problem: str) -> None:
        if problem != self._figures.problem:
            _log.warning("Stream: %s", problem)
        self._figures.problem, self._figures.lag = problem, None


async def _other_is_idle(log: Log) -> None:
    """Wait until no other consumer has appended outputs for `STANDBY_SECONDS`."""
    seen = None
    while (now := await log.seek()) != seen:
        seen = now
        await asyncio.sleep(STANDBY_SECONDS)
