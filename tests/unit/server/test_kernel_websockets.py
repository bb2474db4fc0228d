"""Tests that servers refuse websocket frames that would exhaust their memory, and that the kernels keep working."""

import asyncio
import io
import json
import struct
import uuid
from contextlib import asynccontextmanager

import aiohttp
import pytest
from farandole.protocol import RUN_MARK
from farandole.server.worker.args import WORKER_ARGS
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from spawner_config.profiles.options import NOTEBOOK_ARGS
from tests.strange import limited_memory

PROTOCOL = "v1.kernel.websocket.jupyter.org"
INVALID = 1007
TOKEN = "the-token"
SECONDS = 60
ARGUMENTS = {
    "notebook": ["--ServerApp.jpserver_extensions={'farandole.server.notebook': True}", *NOTEBOOK_ARGS],
    "worker": WORKER_ARGS,
}


@pytest.fixture(params=ARGUMENTS)
async def kernel(request, tmp_path, monkeypatch):
    async with running_kernel(request.param, tmp_path, monkeypatch) as kernel:
        yield kernel


@asynccontextmanager
async def running_kernel(server, folder, monkeypatch):
    """Run a notebook server or a worker's server during this context, and yield a kernel on the server."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    app = ServerApp(port=0, root_dir=str(folder))
    arguments = ["--allow-root", "--no-browser", f"--IdentityProvider.token={TOKEN}", *ARGUMENTS[server]]
    app.initialize(arguments, new_httpserver=False)
    listener, port = bind_unused_port()
    http = HTTPServer(app.web_app, max_body_size=app.max_body_size, max_buffer_size=app.max_buffer_size)
    http.add_sockets([listener])
    headers = {"Authorization": f"token {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers, base_url=f"http://127.0.0.1:{port}/") as session:
        async with session.post("api/kernels", json={}) as answer:
            kernel_id = (await answer.json())["id"]
        yield Kernel(session, kernel_id, port)
    http.stop()
    await http.close_all_connections()
    await app._cleanup()


class Kernel:
    def __init__(self, session, kernel_id, port):
        self.session, self.kernel_id, self.port = session, kernel_id, port

    @asynccontextmanager
    async def socket(self, *protocols):
        path = f"api/kernels/{self.kernel_id}/channels"
        async with asyncio.timeout(SECONDS), self.session.ws_connect(path, protocols=protocols) as socket:
            yield socket

    async def refused(self, frame, *protocols):
        """Send a frame that the server refuses, and return the close code and the reason from the websocket."""
        async with self.socket(*protocols) as socket:
            await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_str(frame))
            while (received := await socket.receive()).type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                pass
            return socket.close_code, received.extra

    async def assert_works(self):
        async with self.socket(PROTOCOL) as socket:
            request = message("kernel_info_request")
            await socket.send_bytes(serialize_msg_to_ws_v1(request, "control"))
            while True:
                _, parts = deserialize_msg_from_ws_v1((await socket.receive()).data)
                if json.loads(parts[0])["msg_type"] == "kernel_info_reply":
                    return


def message(kind, metadata=None, content=None):
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": kind,
        "session": uuid.uuid4().hex,
        "username": "",
        "version": "5.3",
    }
    return [json.dumps(part).encode() for part in (header, {}, metadata or {}, content or {})]


async def test_a_frame_of_four_bytes_does_not_fill_the_memory_of_a_server(kernel):
    with limited_memory():
        code, reason = await kernel.refused(struct.pack("!i", 200_000_000))
        assert (code, "a message of 4 bytes cannot have 200000000 offsets" in reason) == (INVALID, True)
        code, reason = await kernel.refused((20_000_000).to_bytes(8, "little"), PROTOCOL)
        assert (code, "a message of 8 bytes cannot have 20000000 offsets" in reason) == (INVALID, True)
        await kernel.assert_works()


async def test_a_frame_whose_parts_overlap_does_not_fill_the_memory_of_a_server(kernel):
    offsets = [0, 1_000_000] * 5_000
    frame = struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + bytes(1_000_000)
    with limited_memory():
        assert (await kernel.refused(frame, PROTOCOL))[0] == INVALID
        await kernel.assert_works()


@pytest.mark.parametrize("frame", ["[" * 100_000, "[]", "5", '{"header": 5}', '{"channel": []}'])
async def test_a_message_that_is_none_is_refused_with_a_reason(kernel, frame):
    code, reason = await kernel.refused(frame)
    assert (code, bool(reason)) == (INVALID, True)
    await kernel.assert_works()


@pytest.mark.parametrize("content", [{}, {"comm_id": []}, {"comm_id": 5, "target_name": "jupyter.widget.control"}])
async def test_a_strange_comm_is_left_to_the_kernel(kernel, content):
    async with kernel.socket(PROTOCOL) as socket:
        await socket.send_bytes(serialize_msg_to_ws_v1(message("kernel_info_request"), "shell"))
        await socket.receive()
        for kind in ("comm_open", "comm_msg", "comm_close"):
            await socket.send_bytes(serialize_msg_to_ws_v1(message(kind, content=content), "shell"))
        assert not socket.closed
    await kernel.assert_works()


@pytest.mark.parametrize(
    "mark",
    [
        5,
        {"part": "begin"},
        {"part": "begin", "run": [], "rank": 0, "about": {}},
        {"part": "begin", "run": "../../x", "rank": 0, "about": {}},
        {"part": "begin", "run": "r", "rank": 10**300, "about": {}},
        {"part": "begin", "run": "r", "rank": 0, "about": [1]},
        {"part": "begin", "run": "r", "rank": 0, "about": {"folder": 5}},
        {"part": ["cell"], "run": "r"},
    ],
)
async def test_a_strange_mark_of_a_run_does_not_break_the_journals_of_a_worker(tmp_path, monkeypatch, mark):
    async with running_kernel("worker", tmp_path, monkeypatch) as kernel:
        frame = serialize_msg_to_ws_v1(message("execute_request", {RUN_MARK: mark}, {"code": ""}), "shell")
        code, reason = await kernel.refused(frame, PROTOCOL)
        assert (code, "does not describe a request of a run" in reason) == (INVALID, True)
        for path in ("records", "look"):
            async with kernel.session.get(f"farandole/{path}") as answer:
                assert answer.status == 200, await answer.text()
        await kernel.assert_works()


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        "[]",
        '{"slots": 5, "host": ""}',
        '{"slots": [5], "host": ""}',
        '{"slots": [{"colour": 1}], "host": ""}',
        '{"slots": [], "host": "not a host"}',
    ],
)
async def test_a_strange_world_is_refused_by_a_worker(tmp_path, monkeypatch, body):
    async with running_kernel("worker", tmp_path, monkeypatch) as kernel:
        async with kernel.session.post("farandole/rendezvous", data=body) as answer:
            assert answer.status == 400
        async with kernel.session.get("farandole/log?offset=" + "9" * 5000) as answer:
            assert answer.status == 400
        for after in ("x", "-5", "9" * 5000):
            async with kernel.session.get(f"farandole/records/r/k?after={after}") as answer:
                assert answer.status in {400, 404}


@pytest.mark.parametrize(("server", "size"), [("worker", 10_000_001), ("notebook", 256_000_001)])
async def test_a_server_reads_no_larger_body_than_its_limit(server, size, tmp_path, monkeypatch):
    async with running_kernel(server, tmp_path, monkeypatch) as kernel, asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", kernel.port)
        headers = f"Host: a\r\nAuthorization: token {TOKEN}\r\nContent-Length: {size}\r\n"
        writer.write(f"POST /api/contents HTTP/1.1\r\n{headers}\r\n".encode())
        assert b" 400 " in await reader.readline()
        writer.close()
        await kernel.assert_works()


async def test_a_large_notebook_is_saved(tmp_path, monkeypatch):
    async with running_kernel("notebook", tmp_path, monkeypatch) as kernel:
        model = json.dumps({"type": "file", "format": "text", "content": "x" * 80_000_000})
        async with kernel.session.put("api/contents/large.ipynb", data=io.BytesIO(model.encode())) as answer:
            assert answer.status == 201, await answer.text()
        assert (tmp_path / "large.ipynb").stat().st_size == 80_000_000
