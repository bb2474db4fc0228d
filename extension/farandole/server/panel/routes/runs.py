"""The panel's routes for runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from tornado.iostream import StreamClosedError

from farandole.protocol import MOST_RANKS
from farandole.reading import reason
from farandole.runs.folder import read_code, stored_info
from farandole.runs.model import RunInfo
from farandole.server.panel import wire
from farandole.server.panel.charts import Chart
from farandole.server.panel.files import check_reports, csv_chunks, read_log
from farandole.server.panel.routes.clusters import PanelHandler, requires
from farandole.server.panel.runs import NEWEST, Filter

UNSAFE = re.compile(r"[^\w.-]", re.ASCII)
"""Characters of a run's id that the name of a download cannot have."""


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
        number = int(rank) if len(rank) < 10 else MOST_RANKS
        self.answer(await asyncio.to_thread(read_log, info, number, offset, limit))


class CsvHandler(PanelHandler):
    """``GET runs/ID/csv``."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Stream all reports of a run as CSV."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        await asyncio.to_thread(check_reports, info)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        name = UNSAFE.sub("_", info.id)
        self.set_header("Content-Disposition", f'attachment; filename="{name}.csv"')
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
    whole = stored_info(info.folder)
    results: dict[str, Any] = {str(rank): value for rank, value in whole.results.items()}
    return {
        "summary": summary,
        "view": chart.view,
        "sampled": chart.sampled,
        "code": _code(info.folder),
        "options": whole.options,
        "versions": whole.versions,
        "results": results,
        "folder": str(info.folder),
    }


def _code(folder: Path) -> str:
    """Return the code of a run, or a comment about why it cannot be read."""
    try:
        return read_code(folder)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as exc:
        return f"# The code of this run cannot be read: {reason(exc)}"
