"""Refuses requests whose bodies are too large, and takes bodies without a type for JSON."""

from __future__ import annotations

from http import HTTPStatus

from fastapi.exceptions import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farandole.sizes import size_text

MOST_BYTES = 32 * 2**20
BINARY_PART = "inference-header-content-length"
"""The header of requests whose tensors follow the JSON as bytes."""


class BodyLimit:
    """ASGI middleware that answers 413 to requests with a body of more than `MOST_BYTES` bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose body is small enough."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > MOST_BYTES:
            await _refusal()(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BYTES:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _MESSAGE)
            return message

        await self._app(scope, limited, send)


class JsonBodies:
    """ASGI middleware that sets the content type of requests for inference that have no binary part.

    KServe would take them for binary ones, and NVIDIA's client for Python sends no content type.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request."""
        if scope["type"] == "http" and BINARY_PART not in (headers := MutableHeaders(scope=scope)):
            headers["content-type"] = "application/json"
        await self._app(scope, receive, send)


_MESSAGE = f"a request may have {size_text(MOST_BYTES)}; send fewer rows at once, or send them in the binary format"


def _refusal() -> JSONResponse:
    return JSONResponse({"error": _MESSAGE}, status_code=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
