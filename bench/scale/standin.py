"""``python -m bench.scale.standin PORT``: stand-ins for all servers and kernels, in one process.

- The hub, its proxy and the driver are real. All requests and messages from the driver pass through the proxy.
- The servers are not processes, and they need hardly any memory and no startup time. This process executes the cells of
  all ranks one after the other.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import json
import re
import sys
import time
import uuid
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import jupyterhub
from aiohttp import ClientSession, ClientTimeout, web
from farandole.driver.kernels.connection import SUBPROTOCOL
from farandole.driver.workers.worker import WorkerInfo
from farandole.protocol import COMM_TARGET
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

ACTIVITY_SECONDS = 300.0
"""The interval at which a server reports its activity to the hub; this is JupyterHub's default."""
CALL = re.compile(r"fromlist=\['_'\]\)\.(?P<name>\w+)\((?P<arguments>.*?)\)\)?$", re.DOTALL)
"""Matches the function and the arguments in an expression from `farandole.driver.kernels.rank_calls`."""


@dataclass
class Kernel:
    """A rank whose cells can print, report and return a result."""

    worker: str
    rank: int = 0
    size: int = 1
    run: str = ""
    records: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, frame: bytes) -> Iterator[bytes]:
        """Yield the messages with which a kernel replies to a message."""
        channel, parts = deserialize_msg_from_ws_v1(frame)
        header, content = json.loads(parts[0]), json.loads(parts[3])
        if header["msg_type"] == "execute_request":
            yield _message("iopub", "status", {"execution_state": "busy"}, header)
            value, output = self._execute(content)
            if output:
                yield _message("iopub", "stream", {"name": "stdout", "text": output}, header)
            if self.records:
                data = {"run": self.run, "rank": self.rank, "records": self.records}
                yield _message("iopub", "comm_msg", {"comm_id": COMM_TARGET, "data": data}, header)
                self.records = []
            yield _message("iopub", "status", {"execution_state": "idle"}, header)
            yield _message(channel, "execute_reply", {"status": "ok", "user_expressions": value}, header)
        else:
            yield _message(channel, header["msg_type"].replace("_request", "_reply"), {"status": "ok"}, header)

    def _execute(self, content: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the value of a call from the driver, or the output of one of the bench's cells."""
        expression = content["user_expressions"].get("value")
        if expression is not None or CALL.search(content["code"]):
            text = repr(json.dumps(self._call(expression or content["code"])))
            return {"value": {"status": "ok", "data": {"text/plain": text}}}, ""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(content["code"], {"rank": self.rank, "report": self._report, "result": self._result})
        return {}, output.getvalue()

    def _call(self, expression: str) -> Any:
        """Imitate a function of `farandole.ranks.control`."""
        found = CALL.search(expression)
        assert found is not None, expression
        arguments = ast.literal_eval(f"({found['arguments']},)") if found["arguments"] else ()
        if found["name"] == "form":
            self.rank, self.size = int(arguments[0]["FARANDOLE_RANK"]), int(arguments[0]["FARANDOLE_SIZE"])
        elif found["name"] == "begin":
            self.run = arguments[0]
        elif found["name"] == "identity":
            return {}
        elif found["name"] == "preload":
            return {"packages": {}, "data_sets": {}}
        return None

    def _report(self, **values: float) -> None:
        self.records.append({"kind": "report", "rank": self.rank, "time": time.time(), "values": values})

    def _result(self, value: Any) -> None:
        self.records.append({"kind": "result", "value": value})


def _message(channel: str, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> bytes:
    header = {**parent, "msg_id": uuid.uuid4().hex, "msg_type": kind}
    parts = [json.dumps(part).encode() for part in (header, parent, {}, content)]
    frame: bytes = serialize_msg_to_ws_v1(parts, channel)
    return frame


@dataclass
class Server:
    """A server that answers the hub's checks, reports its activity to the hub and has kernels."""

    name: str
    ranks: int
    activity_url: str
    token: str
    kernels: dict[str, Kernel] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    """The tokens that the hub has accepted."""


class StandIn:
    """The web application that stands in for all servers; ``servers`` maps their paths on the proxy to them."""

    def __init__(self) -> None:
        self.servers: dict[str, Server] = {}
        self._hub: ClientSession | None = None
        self._asking = asyncio.Semaphore(8)

    def application(self) -> web.Application:
        """Return an application with the servers' routes, and with the spawner's routes to start and stop servers."""
        server = "/user/{user}/{server}/"
        app = web.Application()
        app.cleanup_ctx.append(self._lives)
        app.router.add_post("/start", self.start)
        app.router.add_post("/stop", self.stop)
        app.router.add_get(server + "farandole/worker", self.describe)
        app.router.add_get(server + "farandole/records", self.recorded)
        app.router.add_post(server + "api/sessions", self.start_kernel)
        app.router.add_get(server + "api/kernels/{kernel}/channels", self.channels)
        app.router.add_delete(server + "api/kernels/{kernel}", self.stop_kernel)
        app.router.add_get("/user/{tail:.*}", self.ready)
        return app

    async def _lives(self, _app: web.Application) -> AsyncIterator[None]:
        self._hub = ClientSession(timeout=ClientTimeout(total=60))
        activity = asyncio.create_task(self._report_activity())
        yield
        activity.cancel()
        await self._hub.close()

    async def start(self, request: web.Request) -> web.Response:
        """Add a server; the request's body holds the fields of `Server` and the server's path."""
        body = await request.json()
        path = body.pop("path")
        self.servers[path] = Server(**body)
        return web.Response()

    async def stop(self, request: web.Request) -> web.Response:
        """Remove a server."""
        self.servers.pop((await request.json())["path"], None)
        return web.Response()

    async def ready(self, request: web.Request) -> web.Response:
        """Answer the hub's request that checks whether a server is up."""
        there = any(request.path.startswith(path) for path in _prefixes(request.path) if path in self.servers)
        version = {"X-JupyterHub-Version": jupyterhub.__version__}
        return web.json_response({"version": "stand-in"}, status=200 if there else 404, headers=version)

    async def describe(self, request: web.Request) -> web.Response:
        """Answer in the same format as `farandole.server.worker.routes.describe`."""
        server = await self._server(request)
        name = server.name
        # This address is reserved for documentation, and nothing connects to it.
        place = {"host": name, "address": "192.0.2.1", "node": name}
        info = WorkerInfo(worker=name, ranks=server.ranks, profile="bench", backends=("none",), backend="none", **place)
        return web.json_response(asdict(info))

    async def recorded(self, request: web.Request) -> web.Response:
        """Return the running kernels and no records, because stand-ins keep no journals."""
        return web.json_response({"kernels": list((await self._server(request)).kernels), "records": []})

    async def start_kernel(self, request: web.Request) -> web.Response:
        """Start a kernel."""
        server = await self._server(request)
        kernel_id = uuid.uuid4().hex
        server.kernels[kernel_id] = Kernel(server.name)
        return web.json_response({"kernel": {"id": kernel_id}}, status=201)

    async def stop_kernel(self, request: web.Request) -> web.Response:
        """Stop a kernel."""
        (await self._server(request)).kernels.pop(request.match_info["kernel"], None)
        return web.Response(status=204)

    async def channels(self, request: web.Request) -> web.WebSocketResponse:
        """Reply to the driver's messages as a kernel does, until the driver disconnects."""
        kernel = (await self._server(request)).kernels[request.match_info["kernel"]]
        socket = web.WebSocketResponse(protocols=(SUBPROTOCOL,), max_msg_size=0, compress=False)
        await socket.prepare(request)
        async for message in socket:
            for answer in kernel.answer(message.data):
                await socket.send_bytes(answer)
        return socket

    async def _server(self, request: web.Request) -> Server:
        """Return the server for a request; verify the token with the hub and cache the result, as real servers do."""
        user, name = request.match_info["user"], request.match_info["server"]
        server = self.servers.get(f"/user/{user}/{name}/")
        if server is None:
            raise web.HTTPNotFound
        token = request.headers.get("Authorization", "")
        if token not in server.tokens:
            async with self._ask(server, "GET", f"{server.activity_url.partition('/users/')[0]}/user", token) as answer:
                if answer.status != 200:
                    raise web.HTTPForbidden
            server.tokens.add(token)
        return server

    @contextlib.asynccontextmanager
    async def _ask(self, server: Server, method: str, url: str, token: str = "", **body: Any) -> AsyncIterator[Any]:
        assert self._hub is not None
        headers = {"Authorization": token or f"token {server.token}"}
        async with self._asking, self._hub.request(method, url, headers=headers, **body) as answer:
            yield answer

    async def _report_activity(self) -> None:
        """Report each server's activity once per `ACTIVITY_SECONDS`; the reports of all servers are spread evenly."""
        while True:
            await asyncio.sleep(1.0)
            due = -(-len(self.servers) // int(ACTIVITY_SECONDS))
            for path in list(self.servers)[:due]:
                server = self.servers.pop(path)
                self.servers[path] = server  # moves the server to the end of the queue
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                body = {"servers": {server.name: {"last_activity": now}}, "last_activity": now}
                with contextlib.suppress(OSError, TimeoutError):
                    async with self._ask(server, "POST", server.activity_url, json=body):
                        pass


def _prefixes(path: str) -> Iterator[str]:
    """Yield the paths of the servers to which a path may belong: ``/user/NAME/`` and ``/user/NAME/SERVER/``."""
    parts = path.split("/")
    for count in (3, 4):
        yield "/".join(parts[:count]) + "/"


if __name__ == "__main__":
    web.run_app(StandIn().application(), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
