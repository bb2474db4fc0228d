"""Refuses requests whose bodies are too large, and treats bodies without a type as JSON."""

from __future__ import annotations

from http import HTTPStatus

from fastapi.exceptions import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farandole.sizes import size_text

MOST_BYTES = 32 * 2**20
MOST_SKIPPED_BYTES = 8 * MOST_BYTES
"""How much of a body that is too large is read before it is refused."""
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
            await _skip(receive)
            await _refusal()(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BYTES:
                if message.get("more_body"):
                    await _skip(receive)
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _MESSAGE)
            return message

        await self._app(scope, limited, send)


class JsonBodies:
    """ASGI middleware that sets the content type of requests for inference that have no binary part.

    KServe would treat them as binary ones, and NVIDIA's client for Python sends no content type.
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


async def _skip(receive: Receive) -> None:
    """Read the rest of a body, up to `MOST_SKIPPED_BYTES` bytes.

    Clients send the whole body before they read the answer. The hub's proxy stops reading a body that has been answered
    and closes the connection a few seconds later, so that the answer comes late, or not at all.
    """
    skipped, more = 0, True
    while more and skipped < MOST_SKIPPED_BYTES:
        message = await receive()
        skipped += len(message.get("body", b""))
        more = message.get("more_body", False)
