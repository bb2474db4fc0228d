"""The panel's routes for runs."""

from __future__ import annotations

import asyncio
from typing import Any

from tornado.iostream import StreamClosedError

from farandole.runs.model import RunInfo
from farandole.server.panel import wire
from farandole.server.panel.charts import Chart
from farandole.server.panel.files import csv_chunks, read_log
from farandole.server.panel.routes.clusters import PanelHandler, requires
from farandole.server.panel.runs import NEWEST, Filter


class RunsHandler(PanelHandler):
    """``GET runs``."""

    @requires("read")
    async def get(self) -> None:
        """Write a page of the list."""
        wanted = Filter(**{key: self.get_query_argument(key, "") for key in ("text", "status", "cluster")})
        offset, limit = max(0, self.number("offset", 0)), max(1, self.number("limit", NEWEST))
        async with self.panel.used():
            active = self.panel.monitor.snapshot.active_runs()
        index = self.panel.index
        page = await asyncio.to_thread(lambda: index.page(active=active, wanted=wanted, offset=offset, limit=limit))
        self.answer(page)


class RunHandler(PanelHandler):
    """``GET runs/ID``."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Write the details of a run."""
        async with self.panel.used():
            info, summary, chart = await asyncio.to_thread(self.load, run)
        self.answer(await asyncio.to_thread(_detail, info, summary, chart))

    def load(self, run: str) -> tuple[RunInfo, wire.RunSummary, Chart]:
        """Return a run's info, summary and view."""
        info = self.panel.index.find(run)
        summary = self.panel.index.summary(info, self.panel.monitor.snapshot.active_runs())
        return info, summary, self.panel.charts.of(info, summary, by_rank=bool(self.number("by_rank", 0)))


class SeriesHandler(RunHandler):
    """``GET runs/ID/series``."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Write the series of a run."""
        async with self.panel.used():
            _, _, chart = await asyncio.to_thread(self.load, run)
        self.answer({"id": run, "sampled": chart.sampled, "series": chart.view["series"]})


class RankLogHandler(PanelHandler):
    """``GET runs/ID/logs/RANK``."""

    @requires("read")
    async def get(self, run: str, rank: str) -> None:
        """Write a chunk of a rank's output."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        offset, limit = self.number("offset", 0), max(4, self.number("limit", 100_000))
        self.answer(await asyncio.to_thread(read_log, info, int(rank), offset, limit))


class CsvHandler(PanelHandler):
    """``GET runs/ID/csv``."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Stream all reports of a run as CSV."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{info.id}.csv"')
        chunks = csv_chunks(info)
        try:
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                self.write(chunk)
                # Waits until the chunk is sent, so that a slow download does not fill the memory.
                await self.flush()
        except StreamClosedError:
            self.log.debug("the download of run %s was interrupted", run)
            return
        except BaseException:
            # Break the connection: a regular end would make an incomplete file look complete.
            self.detach().close()
            raise
        await self.finish(set_content_type="text/csv; charset=utf-8")


class StopHandler(PanelHandler):
    """``POST runs/ID/stop``."""

    @requires("write")
    async def post(self, run: str) -> None:
        """Stop a run on all its ranks."""
        index = self.panel.index
        async with self.panel.used():
            await self.panel.actions.stop_run(await asyncio.to_thread(index.find, run))
            info = await asyncio.to_thread(index.find, run)
            self.answer(index.summary(info, self.panel.monitor.snapshot.active_runs()), 202)


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
