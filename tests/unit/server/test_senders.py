"""Tests that servers read large bodies only from senders with a login, with the servers of a notebook and a worker."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from farandole.server import senders
from farandole.server.senders import SMALL_BODY
from farandole.server.worker.args import WORKER_ARGS
from farandole.sizes import size_text
from jupyter_server.auth import IdentityProvider
from jupyter_server.serverapp import ServerApp
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import HTTPError

from spawner_config.profiles.options import NOTEBOOK_ARGS

TOKEN = "the-token"
SECONDS = 20
LARGE = 20_000_000
STALLED = 10
LOGIN = {"Authorization": f"token {TOKEN}"}
ARGUMENTS = {
    "notebook": ["--ServerApp.jpserver_extensions={'farandole.server.notebook': True}", *NOTEBOOK_ARGS],
    "worker": WORKER_ARGS,
}


class Server:
    """A running server, with the requests that the tests send."""

    def __init__(self, app: ServerApp, port: int, session: aiohttp.ClientSession) -> None:
        self.app, self.port, self.session = app, port, session

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        async with self.session.request(method, path, data=body, headers=headers) as answer:
            return answer.status, await answer.text()

    async def begin(self, headers: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection, and send the headers of a request."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"POST /api/contents HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n".encode("latin-1"))
        return reader, writer

    async def last_words(self, headers: str) -> bytes:
        """Send the headers of a request, and return all that the server sends until it closes the connection."""
        reader, writer = await self.begin(headers)
        try:
            return await asyncio.wait_for(reader.read(), SECONDS)
        finally:
            writer.close()


@asynccontextmanager
async def running(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, token: str = TOKEN
) -> AsyncIterator[Server]:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    app = ServerApp(port=0, root_dir=str(folder))
    arguments = ["--allow-root", "--no-browser", f"--IdentityProvider.token={token}", *ARGUMENTS[kind]]
    app.initialize(arguments, new_httpserver=False)
    listener, port = bind_unused_port()
    http = HTTPServer(app.web_app, max_body_size=app.max_body_size, max_buffer_size=app.max_buffer_size)
    http.add_sockets([listener])
    # The jar must keep cookies of an IP address.
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(SECONDS)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}/", cookie_jar=jar, timeout=timeout) as session:
            yield Server(app, port, session)
    finally:
        http.stop()
        await http.close_all_connections()
        await app._cleanup()


@pytest.fixture
async def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    async with running("notebook", tmp_path, monkeypatch) as server:
        yield server


def model(size: int) -> io.BytesIO:
    """Return a request to save a file of the given size."""
    return io.BytesIO(json.dumps({"type": "file", "format": "text", "content": "x" * size}).encode())


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("path", ["api/contents/x", "login", "nowhere"])
async def test_a_large_body_without_a_login_is_refused(
    kind: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = min(LARGE, 5_000_000) if kind == "worker" else LARGE
    async with running(kind, tmp_path, monkeypatch) as server:
        for headers in ({}, {"Authorization": "token wrong"}, {"Cookie": f"username-127-0-0-1-{server.port}=forged"}):
            status, text = await server.ask("POST", path, io.BytesIO(bytes(size)), **headers)
            assert status == 413, text
            answer = json.loads(text)
            assert answer["status"] == 413
            assert f"/{path} has no valid login and {size_text(size)}, and" in answer["message"]
            assert "at most 64 KiB from unknown senders" in answer["message"]
        assert (await server.ask("GET", "api/status", **LOGIN))[0] == 200


@pytest.mark.parametrize("kind", ARGUMENTS)
async def test_stalled_bodies_without_a_login_take_no_memory(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = bytes(100_000)
    async with running(kind, tmp_path, monkeypatch) as server:
        before = psutil.Process().memory_info().rss
        writers = [(await server.begin("Content-Length: 9500000"))[1] for _ in range(STALLED)]
        for _ in range(90):
            for writer in writers:
                writer.write(piece)
                await writer.drain()
        assert (await server.ask("GET", "api/status", **LOGIN))[0] == 200
        assert psutil.Process().memory_info().rss - before < 30_000_000
        for writer in writers:
            writer.close()


async def test_a_user_saves_a_large_notebook_with_a_token_or_a_cookie(notebook: Server, tmp_path: Path) -> None:
    assert (await notebook.ask("PUT", "api/contents/token.txt", model(LARGE), **LOGIN))[0] == 201
    # A page gets both cookies, and sends the XSRF cookie back as a header.
    assert (await notebook.ask("GET", f"tree?token={TOKEN}"))[0] in {200, 404}
    xsrf = next(cookie.value for cookie in notebook.session.cookie_jar if cookie.key == "_xsrf")
    status, text = await notebook.ask("PUT", "api/contents/cookie.txt", model(LARGE), **{"X-XSRFToken": xsrf})
    assert status == 201, text
    assert [(tmp_path / f"{name}.txt").stat().st_size for name in ("token", "cookie")] == [LARGE] * 2


async def test_a_server_without_logins_reads_large_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("notebook", tmp_path, monkeypatch, token="") as server:
        status, text = await server.ask("PUT", "api/contents/a.txt", model(LARGE))
        # The handler has read the request: it misses the XSRF token.
        assert (status, "_xsrf" in text) == (403, True), text


async def test_a_driver_sends_a_large_world_to_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("worker", tmp_path, monkeypatch) as server:
        body = json.dumps({"slots": ["x" * 2_000_000], "host": ""}).encode()
        status, text = await server.ask("POST", "farandole/rendezvous", io.BytesIO(body), **LOGIN)
        assert (status, "the body must be" in text) == (400, True), text


async def test_small_bodies_reach_the_handlers_without_a_login(notebook: Server) -> None:
    status, text = await notebook.ask("POST", "api/contents", bytes(SMALL_BODY))
    assert (status, "unknown senders" in text) == (403, False)


async def test_bodies_of_unknown_length_need_a_login(notebook: Server) -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b" " * 10_000
        yield b"{}"

    assert (await notebook.ask("POST", "api/contents", pieces(200), **LOGIN))[0] == 201
    notebook.session.cookie_jar.clear()
    try:
        status, _ = await notebook.ask("POST", "api/contents", pieces(200))
    except aiohttp.ClientError:
        status = 400
    assert status == 400


@pytest.mark.parametrize(
    "size", ["200000, 200000", "\u00b2", "+200000", "0x40000", "9" * 5000, "200000\r\nTransfer-Encoding: chunked"]
)
async def test_a_strange_length_gets_no_large_body_past_the_limit(notebook: Server, size: str) -> None:
    answer = await notebook.last_words(f"Content-Length: {size}")
    assert answer.startswith(b"HTTP/1.1 400"), answer


async def test_a_small_body_that_stalls_is_given_up(notebook: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "BODY_SECONDS", 0.2)
    assert await notebook.last_words("Content-Length: 10") == b""


async def test_if_the_hub_does_not_answer_the_reason_is_sent(notebook: Server) -> None:
    class Away(IdentityProvider):  # type: ignore[misc]
        async def get_user(self, _handler: Any) -> None:
            raise HTTPError(502, "Failed to check authorization (upstream problem)")

    notebook.app.web_app.settings["identity_provider"] = Away(parent=notebook.app)
    status, text = await notebook.ask("PUT", "api/contents/a.txt", model(LARGE), **LOGIN)
    assert status == 502
    assert json.loads(text)["message"] == "Failed to check authorization (upstream problem)"
