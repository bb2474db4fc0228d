"""``GET events``: the one stream of a page, a websocket."""

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
    """Tells a page what is new, for as long as it is open."""

    auth_resource = "farandole"

    def initialize(self, panel: Panel) -> None:
        """Take the panel of this server."""
        self.panel = panel
        self._telling: asyncio.Task[None] | None = None
        self._page = Page(panel, self._send)

    def set_default_headers(self) -> None:
        """Set none: those of JupyterHandler are for pages."""

    @property
    def max_message_size(self) -> int:
        """How many bytes a page may send at once."""
        return LONGEST_MESSAGE

    @ws_authenticated
    @authorized(action="read", resource="farandole")
    async def get(self, *args: Any, **kwargs: Any) -> None:  # type: ignore[override]  # what is decorated has no type
        """Open the stream."""
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Begin to tell."""
        super().open(*args, **kwargs)
        self._telling = asyncio.create_task(self._tell(), name="panel: page")

    async def on_message(self, message: str | bytes) -> None:
        """Take what the page wants to hear of."""
        try:
            wanted = json.loads(message)
            if not isinstance(wanted, dict) or wanted.get("kind") != "watch":
                raise UsageError('a page may send {"kind": "watch", ...}')
            self._page.watch(wanted)
        except UsageError as exc:
            await self._page.refuse(exc)
        except ValueError:
            await self._page.refuse(UsageError("this is not JSON"))

    def on_close(self) -> None:
        """Stop to tell."""
        super().on_close()
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        async with self.panel.used():
            try:
                await self._page.tell()
            except WebSocketClosedError:
                self.log.debug("a page of the panel is gone")

    async def _send(self, message: wire.Message) -> None:
        # Awaited until the connection has taken it: this is what keeps a slow page from filling the memory.
        await self.write_message(await asyncio.to_thread(strict_json, message))
