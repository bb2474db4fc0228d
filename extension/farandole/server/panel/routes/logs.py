"""The panel's routes for the logs of runs."""

from __future__ import annotations

import asyncio
import math
import threading

from farandole.driver.output import parse_ranks
from farandole.exceptions import UsageError
from farandole.protocol import LATEST, MOST_RANKS
from farandole.runs.model import RunInfo
from farandole.server.panel import wire
from farandole.server.panel.files import check_rank, read_log
from farandole.server.panel.logs.moments import offset_at
from farandole.server.panel.logs.search import Needle, search
from farandole.server.panel.panel import Panel
from farandole.server.panel.routes.clusters import PanelHandler, requires

MATCHES = 200
MOST_MATCHES = 1000
SEARCH_SECONDS = 5.0
"""How many seconds a search may take before it returns what it has found."""


class RankLogHandler(PanelHandler):
    """``GET runs/ID/logs/RANK`` returns a chunk of a rank's output."""

    @requires("read")
    async def get(self, run: str, rank: str) -> None:
        """Respond with the chunk that starts at the query's offset or time."""
        offset, limit, time = self.number("offset", 0), max(4, self.number("limit", 100_000)), self.time()
        number = int(rank) if len(rank) < 10 else MOST_RANKS

        def read() -> wire.LogPart:
            info = self.panel.index.find(run)
            check_rank(info, number)
            return read_log(info, number, offset if time is None else offset_at(info, number, time), limit)

        self.answer(await asyncio.to_thread(read))

    def time(self) -> float | None:
        """Return the query's time in seconds since the epoch, or None; raise UsageError if it is invalid."""
        text = self.get_query_argument("time", None)
        if text is None:
            return None
        try:
            time = float(text)
        except ValueError:
            time = math.nan
        if not 0 <= time < LATEST:
            raise UsageError(f"time must be a number of seconds since the epoch, not {text[:100]!r}")
        return time


class SearchHandler(PanelHandler):
    """``GET runs/ID/search`` returns the lines of the ranks' output in which a text occurs."""

    def initialize(self, panel: Panel) -> None:
        """Store the panel, and create the event that stops the search."""
        super().initialize(panel)
        self.stopped = threading.Event()

    def on_connection_close(self) -> None:
        """Stop the search, because nobody waits for it any more."""
        super().on_connection_close()
        self.stopped.set()

    @requires("read")
    async def get(self, run: str) -> None:
        """Respond with the first matches."""
        needle = Needle(self.get_query_argument("text", "", strip=False), case=bool(self.number("case", 0)))
        ranks = self.get_query_argument("ranks", "")
        wanted = parse_ranks(ranks) if ranks else None
        limit = min(max(1, self.number("limit", MATCHES)), MOST_MATCHES)
        info: RunInfo = await asyncio.to_thread(self.panel.index.find, run)
        timer = asyncio.get_running_loop().call_later(SEARCH_SECONDS, self.stopped.set)
        try:
            self.answer(await asyncio.to_thread(search, info, wanted, needle, limit, self.stopped))
        finally:
            timer.cancel()
