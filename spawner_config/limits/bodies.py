"""Refuses requests with large bodies before the hub reads them.

JupyterHub has no setting for this. Without this limit, tornado would store up to 100 MB of a body in memory and parse
it on the event loop before any handler checks whether the request has a login.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from farandole.server.bodies import LimitedRequest, announced_size
from farandole.sizes import size_text
from tornado.httpserver import HTTPServer
from tornado.httputil import RequestStartLine

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPMessageDelegate, ResponseStartLine

SMALL_BODY = 16 << 10
"""The default limit in bytes, which is enough for all forms, server options, tokens and activity reports."""
LARGE_BODY = 1 << 20
"""The limit in bytes for requests in which administrators send lists of names."""
LISTS = re.compile(r"/hub/api/(users|groups(/[^/]+(/users|/properties)?)?)/?")
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
"""The beginnings of the content types that tornado parses as forms."""
DRAINED_BODY = 128 << 20
"""Refused bodies up to this number of bytes are read and discarded, so that the client receives the answer. For larger
bodies, tornado closes the connection."""
BODY_SECONDS = 60.0
"""The time in seconds that a client has to send a body. Without this limit, a client could keep many requests open."""


class LimitedServer(HTTPServer):
    """The hub's HTTP server, which answers 413 to requests whose bodies are too large."""

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Return the delegate that receives the next request on a connection."""
        return _LimitedRequest(super().start_request(server_conn, request_conn), request_conn)


class _LimitedRequest(LimitedRequest):
    """Passes a request to ``inner``, but discards a body that is too large.

    If the body is too large, a request below /hub/ is answered with 413. Any other path belongs to a server that has
    stopped: ``inner`` gets the request without its body, so that the client learns that the server is not running.
    """

    _dropped = False

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        assert isinstance(start_line, RequestStartLine)
        # Remove this header. The hub's proxy forwards it unchanged, and tornado would trust it, so clients could choose
        # the address that the hub sees. tornado uses the last address in X-Forwarded-For instead, which the proxy adds.
        headers.pop("X-Real-Ip", None)
        path = start_line.path.partition("?")[0]
        most = largest_body(path, headers)
        size = announced_size(headers)
        if most < size <= DRAINED_BODY:
            self._dropped, most = True, size
            if path.startswith("/hub/"):
                self.refuse(413, _reason(path, size))
        self.limit_body(most)
        return self._inner.headers_received(start_line, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return None if self._dropped else super().data_received(chunk)


def _reason(path: str, size: int) -> str:
    return (
        f"This request has {size_text(size)}, and the hub reads at most {size_text(SMALL_BODY)} for {path}. Send less: "
        "a list of names in several parts, for example. A server's options are its profile and some numbers."
    )


def largest_body(path: str, headers: HTTPHeaders) -> int:
    """Return the largest body that a request may have, in bytes.

    Forms are limited to `SMALL_BODY` on all paths, because tornado parses forms before the login is checked.
    """
    form = headers.get("Content-Type", "").startswith(FORMS)
    return LARGE_BODY if LISTS.fullmatch(path) and not form else SMALL_BODY


def limit_bodies() -> None:
    """Make all HTTP servers in this process a `LimitedServer`; JupyterHub has no option for its server class."""
    HTTPServer.configure(LimitedServer, body_timeout=BODY_SECONDS, max_buffer_size=LARGE_BODY)
