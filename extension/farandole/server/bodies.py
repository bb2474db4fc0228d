"""Answers requests whose bodies are too large. The hub and users' servers share it."""

from __future__ import annotations

import json
import re
from http.client import responses
from typing import TYPE_CHECKING

from tornado.httputil import HTTPHeaders, HTTPMessageDelegate, ResponseStartLine
from tornado.log import app_log

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from tornado.httputil import HTTPConnection

SIZE = re.compile(r"[0-9]{1,18}")


def announced_size(headers: HTTPHeaders) -> int:
    """Return the size of a request's body according to its headers, in bytes, or 0 if there is no valid size."""
    size = headers.get("Content-Length", "")
    return int(size) if SIZE.fullmatch(size) else 0


class LimitedRequest(HTTPMessageDelegate):
    """Passes a request to ``inner``. Subclasses limit or refuse its body in `headers_received`."""

    def __init__(self, inner: HTTPMessageDelegate, connection: HTTPConnection) -> None:
        self._inner = inner
        self._connection = connection

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass on a part of the body."""
        return self._inner.data_received(chunk)

    def finish(self) -> None:
        """Pass on the end of the request."""
        self._inner.finish()

    def on_connection_close(self) -> None:
        """Pass on that the client has closed the connection."""
        self._inner.on_connection_close()

    def limit_body(self, size: int) -> None:
        """Let tornado close the connection if the body is larger than ``size`` bytes."""
        self._connection.set_max_body_size(size)  # type: ignore[attr-defined]

    def refuse(self, status: int, message: str) -> None:
        """Discard the body instead of passing on the request, and then answer with an error."""
        app_log.warning("%d %s", status, message)
        self._inner = _RefusedRequest(self._connection, status, message)


class _RefusedRequest(HTTPMessageDelegate):
    """Discards a body and then answers, because clients read no answer before they have sent the whole body."""

    def __init__(self, connection: HTTPConnection, status: int, message: str) -> None:
        self._connection = connection
        self._status = status
        self._body = json.dumps({"status": status, "message": message}).encode()

    def finish(self) -> None:
        headers = HTTPHeaders({"Content-Type": "application/json", "Content-Length": str(len(self._body))})
        start = ResponseStartLine("HTTP/1.1", self._status, responses.get(self._status, "Unknown"))
        self._connection.write_headers(start, headers, self._body)
        self._connection.finish()
