"""Removes the prefix of an endpoint's URL from paths, because the hub's proxy does not."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Prefix:
    """ASGI middleware that passes on requests below ``prefix``, which begins and ends with a slash."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request with a shorter path, or answer 404."""
        if scope["type"] == "http":
            path = scope["path"]
            if not path.startswith(f"{self._prefix}/"):
                missing = JSONResponse({"error": f"this endpoint is at {self._prefix}/"}, HTTPStatus.NOT_FOUND)
                await missing(scope, receive, send)
                return
            raw = scope.get("raw_path") or path.encode()
            scope = {**scope, "path": path[len(self._prefix) :], "raw_path": raw[len(self._prefix) :]}
        await self._app(scope, receive, send)
