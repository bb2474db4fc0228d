"""Routes of notebook servers for the versions of data sets that they have, from which other hubs mirror them."""

from __future__ import annotations

import asyncio
import os
from io import BufferedReader
from typing import TYPE_CHECKING, Any

from jupyter_server._tz import utcnow
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado import web
from tornado.iostream import StreamClosedError

from farandole.datasets.versions.manifest import MANIFEST
from farandole.datasets.versions.mounted import find
from farandole.datasets.versions.sources import ROUTE, decode
from farandole.exceptions import UsageError
from farandole.reading import open_regular, reason

if TYPE_CHECKING:
    from jupyter_server.serverapp import ServerApp

CHUNK = 1_000_000
SENT = "farandole_data_sets_last_activity"
"""The setting with the time of the last chunk, which `farandole.server.activity.last_use` reads."""


class FileHandler(APIHandler):
    """``GET farandole/data-sets/NAME@NUMBER/manifest`` and ``.../files/PATH``, where PATH is in base64."""

    auth_resource = "contents"

    @web.authenticated
    @authorized("read")
    async def get(self, version: str, name: str | None = None) -> None:
        """Respond with a file of the version, or with 404 if the version or the file does not exist."""
        try:
            folder = find(version)
            file = await asyncio.to_thread(open_regular, folder, MANIFEST if name is None else decode(name))
        except (UsageError, OSError, ValueError) as exc:
            raise web.HTTPError(404, reason(exc)) from exc
        with file:
            await self._send(file)

    async def _send(self, file: BufferedReader) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Length", str(os.fstat(file.fileno()).st_size))
        try:
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                # The hub would stop a server without running cells during a long mirror.
                self.settings[SENT] = utcnow()
                self.write(chunk)
                await self.flush()
        except StreamClosedError:
            # The mirror was interrupted.
            return
        self.finish()


def add_data_sets(serverapp: ServerApp) -> None:
    """Add the routes to a Jupyter server."""
    base = url_path_join(serverapp.base_url, ROUTE)
    routes: list[Any] = [
        (url_path_join(base, r"([^/]+)/manifest"), FileHandler),
        (url_path_join(base, r"([^/]+)/files/([^/]+)"), FileHandler),
    ]
    serverapp.web_app.add_handlers(".*$", routes)
