"""``GET events``: the stream of a page, a websocket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from farandole.exceptions import UsageError
from farandole.runs.writer import strict_json
from farandole.server.panel import wire
from farandole.server.panel.page import Page
from farandole.server.panel.panel import Panel

LONGEST_MESSAGE = 100_000


class EventsHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Sends a page its updates, as long as it is open."""

    auth_resource = "farandole"

    def initialize(self, panel: Panel) -> None:
        """Set the panel."""
        self.panel = panel
        self._telling: asyncio.Task[None] | None = None
        self._page = Page(panel, self._send)

    def set_default_headers(self) -> None:
        """Set no headers: those of JupyterHandler are for HTML pages."""

    @property
    def max_message_size(self) -> int:
        """Maximum size of a message from a page, in bytes."""
        return LONGEST_MESSAGE

    @ws_authenticated
    @authorized(action="read", resource="farandole")
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]  # what is decorated has no type
        """Open the stream."""
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Start sending updates."""
        super().open(*args, **kwargs)
        self._telling = asyncio.create_task(self._tell(), name="panel: page")

    async def on_message(self, message: str | bytes) -> None:
        """Handle a message of the page: its subscriptions."""
        try:
            wanted = json.loads(message)
            if not isinstance(wanted, dict) or wanted.get("kind") != "watch":
                raise UsageError('a page may send {"kind": "watch", ...}')
            self._page.subscribe(wanted)
        except UsageError as exc:
            await self._page.refuse(exc)
        except ValueError:
            await self._page.refuse(UsageError("this is not JSON"))

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

    async def _send(self, message: wire.Message) -> None:
        # Waits until the connection has taken the message, so that a slow page does not fill the memory.
        await self.write_message(await asyncio.to_thread(strict_json, message))
