"""The panel's routes for runs."""

from __future__ import annotations

import asyncio
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tornado.iostream import StreamClosedError

from farandole.reading import reason
from farandole.runs.folder import read_code, stored_info
from farandole.runs.model import RunInfo
from farandole.server.panel import wire, wire_routes
from farandole.server.panel.charts import Chart, usage
from farandole.server.panel.files import check_reports, csv_chunks
from farandole.server.panel.routes.clusters import PanelHandler, requires
from farandole.server.panel.runs import NEWEST, Filter

UNSAFE = re.compile(r"[^\w.-]", re.ASCII)
"""Matches characters in a run's id that are replaced in the file name of a download."""


class RunsHandler(PanelHandler):
    """``GET runs`` returns a page of the list of runs."""

    @requires("read")
    async def get(self) -> None:
        """Respond with the runs that match the query."""
        wanted = Filter(**{key: self.get_query_argument(key, "") for key in ("text", "status", "cluster")})
        offset, limit = max(0, self.number("offset", 0)), max(1, self.number("limit", NEWEST))
        async with self.panel.used():
            active = self.panel.monitor.snapshot.active_runs()
        index = self.panel.index
        page = await asyncio.to_thread(lambda: index.page(active=active, wanted=wanted, offset=offset, limit=limit))
        self.answer(page)


class RunHandler(PanelHandler):
    """``GET runs/ID`` returns the details of a run."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Respond with the run's summary, tags, notes, view, code, options, versions and results."""
        async with self.panel.used():
            info, summary, chart = await asyncio.to_thread(self.load, run)
        self.answer(await asyncio.to_thread(_detail, info, summary, chart))

    def load(self, run: str) -> tuple[RunInfo, wire.RunSummary, Chart]:
        """Return the info, the summary and the view of a run; raise RunNotFoundError if the run is unreadable."""
        info = self.panel.index.find(run)
        summary = self.panel.index.summary(info, self.panel.monitor.snapshot.active_runs())
        return info, summary, self.panel.charts.of(info, summary, by_rank=bool(self.number("by_rank", 0)))


class SeriesHandler(RunHandler):
    """``GET runs/ID/series`` returns the series of a run."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Respond with the series from the run's view."""
        async with self.panel.used():
            _, _, chart = await asyncio.to_thread(self.load, run)
        self.answer({"id": run, "sampled": chart.sampled, "series": chart.view["series"]})


class UsageHandler(PanelHandler):
    """``GET runs/ID/usage`` returns the resource usage of a run's ranks over time."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Respond with samples of the run's usage records."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        by_rank = bool(self.number("by_rank", 0))
        self.answer(await asyncio.to_thread(lambda: usage(info, by_rank=by_rank)))


class CsvHandler(PanelHandler):
    """``GET runs/ID/csv`` returns all reports of a run as a CSV file."""

    @requires("read")
    async def get(self, run: str) -> None:
        """Stream the CSV file, so that large runs need little memory."""
        info = await asyncio.to_thread(self.panel.index.find, run)
        await asyncio.to_thread(check_reports, info)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        name = UNSAFE.sub("_", info.id)
        self.set_header("Content-Disposition", f'attachment; filename="{name}.csv"')
        chunks = csv_chunks(info)
        try:
            while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                # JSON can contain half of a surrogate pair, which UTF-8 cannot represent.
                self.write(chunk.encode("utf-8", "replace"))
                # Wait until the chunk has been sent, so that chunks of a slow download do not accumulate in memory.
                await self.flush()
        except StreamClosedError:
            self.log.debug("the download of run %s was interrupted", run)
            return
        except BaseException:
            # Abort the connection, because an incomplete file would look complete if the response ended normally.
            self.detach().close()
            raise
        await self.finish(set_content_type="text/csv; charset=utf-8")


class StopHandler(PanelHandler):
    """``POST runs/ID/stop`` stops a run."""

    @requires("write")
    async def post(self, run: str) -> None:
        """Stop the run on all its ranks, and respond with the run's summary."""
        index = self.panel.index
        async with self.panel.used():
            await self.panel.actions.stop_run(await asyncio.to_thread(index.find, run))
            info = await asyncio.to_thread(index.find, run)
            self.answer(index.summary(info, self.panel.monitor.snapshot.active_runs()), 202)


def _detail(info: RunInfo, summary: wire.RunSummary, chart: Chart) -> wire_routes.RunDetail:
    whole = stored_info(info.folder)
    results: dict[str, Any] = {str(rank): value for rank, value in whole.results.items()}
    return {
        "summary": summary,
        "tags": list(info.tags),
        "notes": info.notes,
        "view": chart.view,
        "sampled": chart.sampled,
        "code": _code(info.folder),
        "config": whole.config,
        "options": whole.options,
        "versions": whole.versions,
        "results": results,
        "folder": str(info.folder),
        "tensorboard": find_spec("jupyter_server_proxy") is not None and (info.folder / "tensorboard").is_dir(),
    }


def _code(folder: Path) -> str:
    """Return the code of a run, or an empty string if the file is missing.

    If the code cannot be read, return a Python comment with the reason.
    """
    try:
        return read_code(folder)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as exc:
        return f"# The code of this run cannot be read: {reason(exc)}"
