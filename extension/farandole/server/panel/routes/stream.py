"""The panel's route ``GET events``, a websocket that sends updates to a page."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from farandole.exceptions import UsageError
from farandole.reading import parse_json
from farandole.runs.writer import strict_json
from farandole.server.panel import wire
from farandole.server.panel.pages.page import Page
from farandole.server.panel.panel import Panel
from farandole.server.panel.routes.clusters import LONGEST_MESSAGE


class EventsHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Sends updates to a page while the page is open."""

    auth_resource = "farandole"

    def initialize(self, panel: Panel) -> None:
        """Store the panel."""
        self.panel = panel
        self._telling: asyncio.Task[None] | None = None
        self._page = Page(panel, self._send)

    def set_default_headers(self) -> None:
        """Set no headers, because the default headers of JupyterHandler are for HTML pages."""

    @property
    def max_message_size(self) -> int:
        """Maximum size of a message from a page, in bytes."""
        return LONGEST_MESSAGE

    @ws_authenticated
    @authorized(action="read", resource="farandole")
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]  # what is decorated has no type
        """Open the websocket if the user is logged in and authorized."""
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Start sending updates."""
        super().open(*args, **kwargs)
        self._telling = asyncio.create_task(self._tell(), name="panel: page")
        self._telling.add_done_callback(self._ended)

    async def on_message(self, message: str | bytes) -> None:
        """Update the page's subscriptions. A page may send no other messages."""
        try:
            self._page.subscribe(_watch(message))
        except UsageError as exc:
            await self._page.refuse(exc)

    def on_close(self) -> None:
        """Stop sending updates."""
        super().on_close()
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        async with self.panel.used():
            try:
                await self._page.send_updates()
            except WebSocketClosedError:
                self.log.debug("a page of the panel was closed")

    def _ended(self, telling: asyncio.Task[None]) -> None:
        # Close the stream after an unexpected error, so that the page opens a new one. If the stream stayed open, the
        # page would show outdated data.
        if not telling.cancelled() and (error := telling.exception()) is not None:
            self.log.error("the stream of a page has ended", exc_info=error)
            self.close(1011, "unexpected error")

    async def _send(self, message: wire.Message) -> None:
        # Wait until the connection has accepted the message, so that messages to a slow page do not accumulate.
        await self.write_message(await asyncio.to_thread(strict_json, message))


def _watch(message: str | bytes) -> dict[str, Any]:
    try:
        wanted = parse_json(message, "this message")
    except ValueError as exc:
        raise UsageError(f'a page may send only {{"kind": "watch", ...}}; {exc}') from exc
    if wanted.get("kind") != "watch":
        raise UsageError('a page may send only {"kind": "watch", ...}')
    return wanted
