"""Tests for large request bodies, with a server that is created in the same way as JupyterHub's own server."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPHeaders
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from spawner_config.limits.bodies import DRAINED_BODY, LARGE_BODY, SMALL_BODY, largest_body, limit_bodies

OPTIONS = "/hub/api/users/mallory/servers/x"


@pytest.fixture
def limited() -> Iterator[None]:
    before = HTTPServer._save_configuration()
    limit_bodies()
    yield
    HTTPServer._restore_configuration(before)


@asynccontextmanager
async def hub() -> AsyncIterator[tuple[str, list[int]]]:
    """Run a server. Yield its address, and a list that collects the size of each body that reaches a handler."""
    sizes: list[int] = []

    class Handler(RequestHandler):
        def post(self) -> None:
            sizes.append(len(self.request.body))

    server = HTTPServer(Application([(".*", Handler)]), xheaders=True)
    socket, port = bind_unused_port()
    server.add_socket(socket)
    try:
        yield f"http://127.0.0.1:{port}", sizes
    finally:
        server.stop()
        await server.close_all_connections()


def large(size: int) -> io.BytesIO:
    return io.BytesIO(bytes(size))


async def post(url: str, body: Any) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", ["/hub/login", OPTIONS, "/hub/api/users/mallory/tokens"])
async def test_a_body_of_60_mb_is_refused_before_any_handler_reads_it(limited: None, path: str) -> None:
    async with hub() as (url, sizes):
        status, text = await post(f"{url}{path}", large(60_000_000))
        assert (status, sizes) == (413, [])
        assert f"57 MiB, and the hub reads at most 16 KiB for {path}" in json.loads(text)["message"]
        # The server still accepts bodies that are small enough.
        assert (await post(f"{url}{path}", large(SMALL_BODY)))[0] == 200
        assert sizes == [SMALL_BODY]


async def test_a_body_of_unknown_length_is_cut_off(limited: None) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 10_000

    async with hub() as (url, sizes):
        try:
            status, _ = await post(f"{url}/hub/login", endless())
        except aiohttp.ClientError:
            status = 400
        assert (status, sizes) == (400, [])


async def test_the_announcement_of_a_huge_body_ends_the_connection(limited: None) -> None:
    async with hub() as (url, sizes):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(f"POST /hub/login HTTP/1.1\r\nHost: x\r\nContent-Length: {DRAINED_BODY + 1}\r\n\r\n".encode())
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 400")
        writer.close()
        assert sizes == []


@pytest.mark.parametrize("size", ["\u00b2", "+2000000", "9" * 5000])
async def test_a_length_that_is_no_number_is_answered(limited: None, size: str) -> None:
    async with hub() as (url, sizes):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        request = f"POST /hub/login HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
        writer.write(request.encode("latin-1"))
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 400")
        writer.close()
        assert sizes == []


async def test_a_notebook_saved_to_a_stopped_server_gets_the_hubs_answer(limited: None) -> None:
    async with hub() as (url, sizes):
        assert (await post(f"{url}/user/ada/api/contents/a.ipynb", large(2_000_000)))[0] == 200
        assert sizes == [0]


def test_only_lists_of_names_may_be_large_and_no_form() -> None:
    json_type = HTTPHeaders({"Content-Type": "application/json"})
    form = HTTPHeaders({"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})
    lists = ["/hub/api/users", "/hub/api/groups", "/hub/api/groups/g", "/hub/api/groups/g/users"]
    assert {largest_body(path, json_type) for path in lists} == {LARGE_BODY}
    assert {largest_body(path, form) for path in lists} == {SMALL_BODY}
    # Tornado compares only the beginning of the content type.
    for kind in ("application/x-www-form-urlencodedX", "multipart/form-data-x"):
        assert {largest_body(path, HTTPHeaders({"Content-Type": kind})) for path in lists} == {SMALL_BODY}
    small = [OPTIONS, "/hub/login", "/hub/api/users/ada", "/hub/api/users/ada/server", "/hub/spawn"]
    assert {largest_body(path, json_type) for path in small} == {SMALL_BODY}


async def test_nobody_chooses_their_own_address(limited: None) -> None:
    """Clients can set X-Real-Ip, which tornado trusts, but the proxy appends the last address in X-Forwarded-For."""

    class Address(RequestHandler):
        def get(self) -> None:
            self.finish(str(self.request.remote_ip))

    server = HTTPServer(Application([(".*", Address)]), xheaders=True)
    socket, port = bind_unused_port()
    server.add_socket(socket)
    forged = {"X-Real-Ip": "192.0.2.66", "X-Forwarded-For": "192.0.2.66, 192.0.2.1"}
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/", headers=forged) as answer:
        assert await answer.text() == "192.0.2.1"
    server.stop()
    await server.close_all_connections()
