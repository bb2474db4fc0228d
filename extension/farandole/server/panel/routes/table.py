"""The panel's routes for the table of runs, and for the changes of a run."""

from __future__ import annotations

import asyncio

from farandole.server.panel.routes.clusters import PanelHandler, requires
from farandole.server.panel.routes.runs import RunHandler
from farandole.server.panel.runs import NEWEST, Filter


class TableHandler(PanelHandler):
    """``GET table`` returns a page of the table of runs."""

    @requires("read")
    async def get(self) -> None:
        """Respond with the rows that match the query. Without a column to sort by, the newest runs come first.

        Each ``column`` adds a column of a series or of a hyper-parameter to the rows.
        """
        wanted = Filter(**{key: self.get_query_argument(key, "") for key in ("text", "status", "cluster", "tag")})
        sort = self.get_query_argument("sort", "")
        descending = bool(self.number("descending", 0 if sort else 1))
        added = self.get_query_arguments("column", strip=False)
        offset, limit = max(0, self.number("offset", 0)), max(1, self.number("limit", NEWEST))
        async with self.panel.used():
            active = self.panel.monitor.snapshot.active_runs()
        page = await asyncio.to_thread(
            self.panel.table.page,
            active=active,
            wanted=wanted,
            sort=sort or "started",
            descending=descending,
            added=added,
            offset=offset,
            limit=limit,
        )
        self.answer(page)


class ChangeableRunHandler(RunHandler):
    """``PATCH runs/ID`` changes the name, tags and notes of a run, and ``DELETE runs/ID`` deletes the run."""

    @requires("write")
    async def patch(self, run: str) -> None:
        """Change what the body contains, and respond with the run's new row."""
        edit = self.body()
        async with self.panel.used():
            active = self.panel.monitor.snapshot.active_runs()
        self.answer(await asyncio.to_thread(self.panel.table.change, run, edit, active))

    @requires("write")
    async def delete(self, run: str) -> None:
        """Delete the run, unless it is in progress."""
        async with self.panel.used():
            monitor = self.panel.monitor
            await asyncio.to_thread(self.panel.table.delete, run, monitor.snapshot.active_runs(), monitor.unsure)
        self.set_status(204)
        self.finish()
