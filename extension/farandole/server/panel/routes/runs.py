"""The panel's routes for runs: read from the store, and stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web
from tornado.iostream import StreamClosedError

from farandole.runs.model import RunInfo
from farandole.server.panel import wire
from farandole.server.panel.charts import Chart
from farandole.server.panel.files import csv_chunks, log_part
from farandole.server.panel.routes.clusters import PanelHandler
from farandole.server.panel.runs import NEWEST, Filter


class RunsHandler(PanelHandler):
    """``GET runs``."""

    @web.authenticated
    @authorized(action="read")
    async def get(self) -> None:
        """Write a page of the list of runs."""
        wanted = Filter(**{key: self.get_query_argument(key, "") for key in ("text", "status", "cluster")})
        offset, limit = max(0, self.number("offset", 0)), max(1, self.number("limit", NEWEST))
        async with self.panel.used():
            going = self.panel.fleet.sources.going()
        index = self.panel.index
        page = await asyncio.to_thread(lambda: index.page(going=going, wanted=wanted, offset=offset, limit=limit))
        self.answer(page)


class RunHandler(PanelHandler):
    """``GET runs/ID``."""

    @web.authenticated
    @authorized(action="read")
    async def get(self, run: str) -> None:
        """Write all that is shown of a run."""
        async with self.panel.used():
            info, summary, chart = await asyncio.to_thread(self.look, run)
        self.answer(await asyncio.to_thread(_detail, info, summary, chart))

    def look(self, run: str) -> tuple[RunInfo, wire.RunSummary, Chart]:
        """Return what is known of a run, and shown of it."""
        info = self.panel.index.find(run)
        summary = self.panel.index.summary(info, self.panel.fleet.sources.going())
        return info, summary, self.panel.charts.of(info, summary, by_rank=bool(self.number("by_rank", 0)))


class SeriesHandler(RunHandler):
    """``GET runs/ID/series``."""

    @web.authenticated
    @authorized(action="read")
    async def get(self, run: str) -> None:
        """Write the series of a run."""
        async with self.panel.used():
            _, _, chart = await asyncio.to_thread(self.look, run)
        self.answer({"id": run, "sampled": chart.sampled, "series": chart.view["series"]})


class RankLogHandler(PanelHandler):
    """``GET runs/ID/logs/RANK``."""

    @web.authenticated
    @authorized(action="read")
    async def get(self, run: str, rank: str) -> None:
        """Write a part of what a rank printed."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        offset, limit = self.number("offset", 0), max(4, self.number("limit", 100_000))
        self.answer(await asyncio.to_thread(log_part, info, int(rank), offset, limit))


class CsvHandler(PanelHandler):
    """``GET runs/ID/csv``."""

    @web.authenticated
    @authorized(action="read")
    async def get(self, run: str) -> None:
        """Write all reports of a run as CSV, a piece at a time."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{info.id}.csv"')
        chunks = csv_chunks(info)
        try:
            while (chunk := await asyncio.to_thread(_next, chunks)) is not None:
                self.write(chunk)
                # The next piece is read when this one is on its way: a slow download holds nothing in memory.
                await self.flush()
        except StreamClosedError:
            self.log.debug("the download of run %s was broken off", run)
            return
        except BaseException:
            # The connection breaks: what ended properly would be taken for the whole.
            self.detach().close()
            raise
        await self.finish(set_content_type="text/csv; charset=utf-8")


class StopHandler(PanelHandler):
    """``POST runs/ID/stop``."""

    @web.authenticated
    @authorized(action="write")
    async def post(self, run: str) -> None:
        """Stop a run on all its ranks."""
        index = self.panel.index
        async with self.panel.used():
            await self.panel.actions.stop_run(await asyncio.to_thread(index.find, run))
            info = await asyncio.to_thread(index.find, run)
            self.answer(index.summary(info, self.panel.fleet.sources.going()), 202)


def _next(chunks: Iterator[str]) -> str | None:
    return next(chunks, None)


def _detail(info: RunInfo, summary: wire.RunSummary, chart: Chart) -> wire.RunDetail:
    code = info.folder / "code.py"
    results: dict[str, Any] = {str(rank): value for rank, value in info.results.items()}
    return {
        "summary": summary,
        "view": chart.view,
        "sampled": chart.sampled,
        "code": code.read_text(encoding="utf-8") if code.exists() else "",
        "options": info.options,
        "versions": info.versions,
        "results": results,
        "folder": str(info.folder),
    }
