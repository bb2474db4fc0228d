"""Tests for the client of the hub's REST API, with hubs that do not answer as they should."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

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


class Users(RequestHandler):
    """The hub's list of 250 users, of whom every second one has a server."""

    asked: ClassVar[list[str]] = []

    def get(self) -> None:
        self.asked.append(self.request.query)
        names = [f"user-{number}" for number in range(0, 250, 2 if self.get_argument("state", "") == "active" else 1)]
        limit, offset = int(self.get_argument("limit")), int(self.get_argument("offset", "0"))
        following = {"offset": offset + limit, "limit": limit} if offset + limit < len(names) else None
        items = [{"name": name} for name in names[offset : offset + limit]]
        self.write({"items": items, "_pagination": {"total": len(names), "next": following}})


async def test_the_hub_lists_only_users_with_servers_if_it_is_asked_to_and_counts_all() -> None:
    sock, port = bind_unused_port()
    server = HTTPServer(Application([("/users", Users)]))
    server.add_socket(sock)
    client = HubClient(url=f"http://127.0.0.1:{port}", token="x")
    assert len(await client.users()) == 250
    assert len(Users.asked) == 2
    assert len(await client.users(active=True)) == 125
    assert await client.count_users() == 250
    assert Users.asked[2:] == ["limit=200&offset=0&state=active", "limit=1"]
    server.stop()
