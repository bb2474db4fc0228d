"""Refuses large bodies of senders without a login, before the server reads them.

Jupyter Server checks the login in a handler, which runs when the whole body is in memory. Without this limit, anyone
could fill the memory of a server with a few connections, and end it.
"""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING

from jupyter_server.base.handlers import JupyterHandler
from tornado.httputil import HTTPServerRequest, RequestStartLine
from tornado.web import Application, HTTPError

from farandole.server.bodies import LimitedRequest, announced_size
from farandole.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from jupyter_server.serverapp import ServerApp
    from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPMessageDelegate, ResponseStartLine

SMALL_BODY = 64 << 10
"""The size in bytes up to which bodies are read from anyone. Tornado reads headers of the same size from anyone."""
BODY_SECONDS = 60.0
"""The time in seconds that senders without a login, and all senders of small bodies, have to send a body."""


class _Sender(JupyterHandler):
    """Identifies the sender of a request by its headers. This handler never answers a request."""

    def check_xsrf_cookie(self) -> None:
        """Do nothing: the handler that gets the request checks it, and some handlers need no XSRF token."""

    async def is_known(self) -> bool:
        """Return whether the sender has a login at this server; raises HTTPError if the hub does not answer."""
        user = self.identity_provider.get_user(self)
        return bool(await user if isawaitable(user) else user)


class _LimitedRequest(LimitedRequest):
    """Passes a request to ``inner``, but refuses a large body of a sender without a login.

    The login is the one that the handler checks later. JupyterHub caches the hub's answer, so the hub gets no request
    in addition.
    """

    def __init__(self, inner: HTTPMessageDelegate, connection: HTTPConnection, application: Application) -> None:
        super().__init__(inner, connection)
        self._application = application

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        assert isinstance(start_line, RequestStartLine)
        if announced_size(headers) > SMALL_BODY or "Transfer-Encoding" in headers:
            return self._receive_large(start_line, headers)
        self._limit()
        return self._inner.headers_received(start_line, headers)

    async def _receive_large(self, start_line: RequestStartLine, headers: HTTPHeaders) -> None:
        request = HTTPServerRequest(connection=self._connection, start_line=start_line, headers=headers)
        try:
            known = await _Sender(self._application, request).is_known()
        except HTTPError as exc:
            self._discard(exc.status_code, exc.log_message or "The login cannot be checked.")
            return
        if not known and announced_size(headers):
            self._discard(413, _reason(request, announced_size(headers)))
            return
        if not known:
            self._limit()
        received = self._inner.headers_received(start_line, headers)
        if received is not None:
            await received

    def _limit(self) -> None:
        self.limit_body(SMALL_BODY)
        self._limit_time()

    def _discard(self, status: int, message: str) -> None:
        self._limit_time()
        self.refuse(status, message)

    def _limit_time(self) -> None:
        self._connection.set_body_timeout(BODY_SECONDS)  # type: ignore[attr-defined]


def _reason(request: HTTPServerRequest, size: int) -> str:
    return (
        f"The request for {request.path} has no valid login and {size_text(size)}, and this server reads at "
        f"most {size_text(SMALL_BODY)} from unknown senders. Log in again in another tab, or send a valid token, and "
        "try again."
    )


def limit_bodies(serverapp: ServerApp) -> None:
    """Make a server refuse large bodies of senders without a login.

    The HTTP server, which Jupyter Server creates after it has loaded all extensions, calls the application for each
    request on a connection.
    """
    application = serverapp.web_app
    start_request = application.start_request

    def start_limited(server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        return _LimitedRequest(start_request(server_conn, request_conn), request_conn, application)

    application.start_request = start_limited  # type: ignore[method-assign]
