"""Tests for the client of the hub's REST API, with hubs that do not answer as they should."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tornado.testing import bind_unused_port

from hub.services.operators.client import HubClient, HubRefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HTML = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 6\r\n\r\n<html>"


@asynccontextmanager
async def hub_with(answer: bytes) -> AsyncIterator[HubClient]:
    """Serve a hub that sends the same bytes for each request, and then hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    sock, port = bind_unused_port()
    async with await asyncio.start_server(serve, sock=sock):
        yield HubClient(url=f"http://127.0.0.1:{port}", token="x")


@pytest.mark.parametrize(("answer", "message"), [(b"", "does not answer"), (HTML, "answered HTTP 503")])
async def test_a_hub_that_hangs_up_or_answers_in_html_is_an_error_with_a_sentence(answer: bytes, message: str) -> None:
    async with hub_with(answer) as client:
        with pytest.raises(HubRefusedError, match=message):
            await client.stop("ada", "main-w0")


async def test_a_refused_connection_is_an_error_with_a_sentence() -> None:
    sock, port = bind_unused_port()
    sock.close()
    with pytest.raises(HubRefusedError, match="the hub does not answer .*refused"):
        await HubClient(url=f"http://127.0.0.1:{port}", token="x").users()
