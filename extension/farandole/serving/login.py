"""Admits requests with a token that may access this endpoint, as the hub says."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any

from jupyterhub.services.auth import HubAuth
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose
from tornado.web import HTTPError

SCHEMES = ("bearer", "token")
_log = logging.getLogger(__name__)


class HubLogin:
    """ASGI middleware that answers 403 to requests without a token for this endpoint, and to all WebSockets.

    Requests for `management` paths change the endpoint. They need a token of the user who owns it, such as that of the
    user's notebook, and not only one that may call the endpoint.
    """

    def __init__(self, app: ASGIApp, auth: HubAuth, *, callers: set[str], owners: set[str], management: str) -> None:
        """``callers`` and ``owners`` are the scopes, of which a token needs one."""
        self._app = app
        self._auth = auth
        self._callers = callers
        self._owners = owners
        self._management = management
        self._asking: dict[str, asyncio.Task[Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on an admitted request, or answer it."""
        refusal = await self._refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> ASGIApp | None:
        if scope["type"] == "lifespan":
            return None
        if scope["type"] != "http":
            return WebSocketClose()
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() not in SCHEMES or not token:
            return _answer(
                HTTPStatus.FORBIDDEN, "send a token as `Authorization: Bearer TOKEN`; `%serve token` makes one"
            )
        try:
            user = await self._user(token)
        except HTTPError as exc:
            # The details name the hub's internal address, which is not for callers.
            _log.warning("The hub cannot check a token: %s", exc.log_message)
            return _answer(HTTPStatus.SERVICE_UNAVAILABLE, "the hub cannot check the token now; try again in a minute")
        wanted = self._owners if scope["path"].startswith(self._management) else self._callers
        if user is None or not self._auth.check_scopes(wanted, user):
            return _answer(HTTPStatus.FORBIDDEN, "the token has expired, was revoked, or may not access this endpoint")
        return None

    def _user(self, token: str) -> Awaitable[dict[str, Any] | None]:
        """Ask the hub about a token. Requests that come at the same time ask once."""
        key = hashlib.sha256(token.encode()).hexdigest()
        if key not in self._asking:
            asking = asyncio.ensure_future(self._auth.user_for_token(token, sync=False))
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
            self._asking[key] = asking
        return asyncio.shield(self._asking[key])


def _answer(status: HTTPStatus, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)
