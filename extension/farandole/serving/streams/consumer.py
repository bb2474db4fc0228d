"""Scores the records of a stream, one batch after the other, until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from farandole.exceptions import StreamError
from farandole.serving.streams.figures import StreamFigures
from farandole.serving.streams.log import ConflictError, Log, UnavailableError
from farandole.serving.streams.scorer import Scorer

SHORTEST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
STANDBY_SECONDS = 5.0
"""A consumer whose outputs were refused takes over if a record has waited for this time."""
_log = logging.getLogger(__name__)


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
        self._begun = asyncio.Event()
        self._uncertain = ""
        """The position of the last record whose output was sent without an answer, or an empty string."""

    async def begun(self) -> None:
        """Wait until the streams exist, or a problem is known."""
        await self._begun.wait()

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
            if await log.seek() == self._uncertain:
                self._uncertain = ""
            self._begun.set()
            try:
                while True:
                    await self._score(log)
            except ConflictError:
                self._failed("another endpoint scores these records; this one continues when the other one stops")
                self._uncertain = ""
                await _record_has_waited(log)

    async def _score(self, log: Log) -> None:
        batch = await log.read()
        if not self._uncertain:
            self._figures.problem = ""
        self._figures.lag = None if batch.waiting is None else batch.waiting + len(batch.records)
        if not batch.records:
            return
        outputs = await self._scorer.score(batch.records)
        self._uncertain = outputs[-1].record.position
        await log.append(outputs)
        self._uncertain, self._figures.problem, self._pause = "", "", SHORTEST_PAUSE
        self._figures.add(outputs, batch.waiting)
        self._used()

    def _failed(self, problem: str) -> None:
        if problem != self._figures.problem:
            _log.warning("Stream: %s", problem)
        self._figures.problem, self._figures.lag = problem, None
        self._begun.set()


async def _record_has_waited(log: Log) -> None:
    """Wait until a record has had no output for `STANDBY_SECONDS`, so that the other consumer seems to have ended."""
    while True:
        position = await log.seek()
        while not (await log.read()).records:
            pass
        await asyncio.sleep(STANDBY_SECONDS)
        if await log.position() == position:
            return
