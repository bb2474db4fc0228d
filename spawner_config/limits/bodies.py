"""Refuses requests to the hub with a body that is too large, before the hub reads the body.

JupyterHub has no setting for this. Tornado would keep up to 100 MB of each body in memory, and parse it on the event
loop, before any handler looks at the login.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, RequestStartLine, ResponseStartLine
from tornado.log import app_log

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tornado.httputil import HTTPConnection

SMALL_BODY = 16 << 10
"""Enough for every form, and for the options, tokens and reports of users and servers."""
LARGE_BODY = 1 << 20
"""Enough for the lists of names that administrators send."""
LISTS = re.compile(r"/hub/api/(users|groups(/[^/]+(/users|/properties)?)?)/?")
DRAINED_BODY = 128 << 20
"""A refused body of up to this size is read and dropped, so that the client gets the answer; others are cut off."""
BODY_SECONDS = 60.0
"""How long a client may take to send a body; a client could otherwise keep many requests open."""


class LimitedServer(HTTPServer):
    """The hub's server, which answers 413 to a request with a body that is too large."""

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Return the reader of the next request on a connection."""
        return _LimitedRequest(super().start_request(server_conn, request_conn), request_conn)


class _LimitedRequest(HTTPMessageDelegate):
    """Passes a request to ``inner``, or drops its body.

    A request outside of /hub belongs to a server that has stopped. The hub drops the body and answers, so that
    the client learns that the server is gone.
    """

    def __init__(self, inner: HTTPMessageDelegate, connection: HTTPConnection) -> None:
        self._inner = inner
        self._connection = connection
        self._dropped = 0
        self._refused = ""

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        assert isinstance(start_line, RequestStartLine)
        # Remove this header: the hub's proxy passes it on as the client sent it, and tornado would trust it, so
        # clients could choose their address. The last part of X-Forwarded-For comes from the proxy itself.
        headers.pop("X-Real-Ip", None)
        path = start_line.path.partition("?")[0]
        most = largest_body(path, headers)
        size = headers.get("Content-Length", "")
        if size.isdigit() and most < int(size) <= DRAINED_BODY:
            self._dropped = most = int(size)
            self._refused = path if path.startswith("/hub/") else ""
        self._connection.set_max_body_size(most)  # type: ignore[attr-defined]
        return None if self._refused else self._inner.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return None if self._dropped else self._inner.data_received(chunk)

    def finish(self) -> None:
        if self._refused:
            self._refuse()
        else:
            self._inner.finish()

    def on_connection_close(self) -> None:
        if not self._refused:
            self._inner.on_connection_close()

    def _refuse(self) -> None:
        message = (
            f"This request has {self._dropped} bytes, and the hub reads at most {SMALL_BODY} for {self._refused}. Send "
            "less: a server's options, for example, are its profile and some numbers."
        )
        app_log.warning("413 %s: a body of %d bytes", self._refused, self._dropped)
        body = json.dumps({"status": 413, "message": message}).encode()
        headers = HTTPHeaders({"Content-Type": "application/json", "Content-Length": str(len(body))})
        self._connection.write_headers(ResponseStartLine("HTTP/1.1", 413, "Request Entity Too Large"), headers, body)
        self._connection.finish()


def largest_body(path: str, headers: HTTPHeaders) -> int:
    """Return the largest body of a request; tornado parses forms before the login, so they are small everywhere."""
    form = headers.get("Content-Type", "").partition(";")[0].strip() in {
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    }
    return LARGE_BODY if LISTS.fullmatch(path) and not form else SMALL_BODY


def limit_bodies() -> None:
    """Make every HTTP server of this process a `LimitedServer`: JupyterHub creates its servers without options."""
    HTTPServer.configure(LimitedServer, body_timeout=BODY_SECONDS, max_buffer_size=LARGE_BODY)
