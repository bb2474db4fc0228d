"""One rank's kernel, reached over one websocket."""

from __future__ import annotations

import ast
import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import aiohttp
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

from farandole.driver.workers import Worker
from farandole.exceptions import DeadlineError, WorkerStartError
from farandole.protocol import COMM_TARGET

SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
OUTPUT_TYPES = frozenset({"stream", "display_data", "execute_result", "update_display_data", "clear_output"})

Sink: TypeAlias = Callable[[int, str, dict[str, Any]], None]
"""Called with (rank, message type, content) for every output message of an execution."""
Records: TypeAlias = Callable[[int, dict[str, Any], list[bytes]], None]
"""Called with (rank, comm data, buffers) for every batch of rank messages."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """How one execution on one rank ended.

    ``status`` is ok, error or dead; ``ended`` is seconds on `time.monotonic`; for an error ``ename``, ``evalue`` and
    ``traceback`` (lines with ANSI colours) are the kernel's; for a death ``evalue`` is its cause.
    """

    rank: int
    worker: str
    status: str
    ended: float
    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()
    value: Any = None


class _Execution:
    """An execution is over when its reply has come: the worker's server holds that back until all output has left."""

    def __init__(self, sink: Sink | None) -> None:
        self.sink = sink
        self.done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def settle(self, reply: dict[str, Any]) -> None:
        if not self.done.done():
            self.done.set_result(reply)


class RankKernel:
    """One kernel on a worker; all its methods belong to the event loop that made it."""

    def __init__(self, worker: Worker, kernel_id: str, *, slot: int, on_records: Records | None = None) -> None:
        self.worker = worker
        self.kernel_id = kernel_id
        self.slot = slot
        self.rank = -1
        self.prepared = False
        self.on_records = on_records
        self.death: str | None = None
        self.idle_seconds = 0.0
        """How long it had nothing to do for us before it died."""
        self._last_use = time.monotonic()
        self._session = uuid.uuid4().hex
        self._running: dict[str, _Execution] = {}
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._receiver: asyncio.Task[None] | None = None
        self._aside: asyncio.Future[str] | None = None

    @property
    def alive(self) -> bool:
        """True until the kernel's death is known."""
        return self.death is None

    @property
    def busy(self) -> bool:
        """True while an execution of ours has not ended."""
        return bool(self._running)

    async def connect(self) -> None:
        """Open the websocket and start to receive."""
        self._socket = await self.worker.kernel_socket(self.kernel_id, self._session, SUBPROTOCOL)
        self._receiver = asyncio.create_task(self._receive(), name=f"rank {self.rank}")

    async def close(self) -> None:
        """Close the websocket; the kernel lives on."""
        if self._socket is not None:
            await self._socket.close()
        if self._receiver is not None:
            await asyncio.wait([self._receiver])

    async def execute(
        self,
        code: str,
        *,
        silent: bool = False,
        sink: Sink | None = None,
        expression: str = "",
        subshell: str | None = None,
    ) -> Reply:
        """Execute code and wait until it has ended, however that is; never raises for what the code does."""
        content = {
            "code": code,
            "silent": silent,
            "store_history": False,
            "user_expressions": {"value": expression} if expression else {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        execution = _Execution(sink)
        message_id = await self._send("shell", "execute_request", content, subshell=subshell, execution=execution)
        try:
            return self._reply(await execution.done)
        finally:
            self._running.pop(message_id, None)
            self._last_use = time.monotonic()

    async def evaluate(self, expression: str, *, subshell: str | None = None) -> Reply:
        """Evaluate an expression that gives a JSON text; its meaning is the reply's value. It leaves no trace."""
        return await self.execute("", silent=True, expression=expression, subshell=subshell)

    async def interrupt(self) -> None:
        """Send the kernel SIGINT through its server."""
        await self.worker.interrupt_kernel(self.kernel_id)

    async def subshell(self) -> str:
        """Open a subshell, a thread of the kernel that answers while its main thread is blocked; return its id.

        Source: JEP 91.
        """
        execution = _Execution(None)
        message_id = await self._send("control", "create_subshell_request", {}, execution=execution)
        try:
            reply = await execution.done
        finally:
            self._running.pop(message_id, None)
        return str(reply.get("subshell_id", ""))  # a dead kernel has none, and nothing will run in it

    async def aside(self) -> str:
        """Return the id of the one subshell that is kept for calls beside running cells."""
        if self._aside is None:
            self._aside = asyncio.ensure_future(self.subshell())
        return await asyncio.shield(self._aside)

    async def kill(self) -> None:
        """End the kernel's process, whatever it does."""
        # Whoever waits for it need not wait for the process to go.
        self.mark_dead("stopped, because it did not answer an interrupt")
        try:
            await self.worker.stop_kernel(self.kernel_id)
        except WorkerStartError:
            self.mark_dead("lost: its worker cannot be reached")

    def mark_dead(self, cause: str) -> None:
        """Note the kernel's death and end all that waits for it."""
        if self.death is None:
            self.death = cause
            self.idle_seconds = 0.0 if self.busy else time.monotonic() - self._last_use
        for execution in self._running.values():
            execution.settle({"status": "dead"})

    async def push(self, target: str, data: dict[str, Any], blob: bytes) -> None:
        """Open a comm on the kernel that carries one buffer."""
        content = {"comm_id": uuid.uuid4().hex, "target_name": target, "data": data}
        await self._send("shell", "comm_open", content, buffers=[blob])

    def _reply(self, content: dict[str, Any]) -> Reply:
        if content["status"] == "dead":
            return Reply(
                rank=self.rank,
                worker=self.worker.name,
                status="dead",
                ended=time.monotonic(),
                evalue=self.death or "",
            )
        result = content.get("user_expressions", {}).get("value", {"status": "ok"})
        outcome = content if content["status"] != "ok" else result
        return Reply(
            rank=self.rank,
            worker=self.worker.name,
            status="ok" if outcome["status"] == "ok" else "error",
            ended=time.monotonic(),
            ename=outcome.get("ename", ""),
            evalue=outcome.get("evalue", ""),
            traceback=tuple(outcome.get("traceback", ())),
            value=_value(result) if outcome["status"] == "ok" and "data" in result else None,
        )

    async def _send(
        self,
        channel: str,
        kind: str,
        content: dict[str, Any],
        *,
        subshell: str | None = None,
        execution: _Execution | None = None,
        buffers: list[bytes] | None = None,
    ) -> str:
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self._session,
            "username": "farandole",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": "5.5",
        }
        if subshell is not None:
            header["subshell_id"] = subshell
        if execution is not None:
            self._running[header["msg_id"]] = execution
            if not self.alive:
                execution.settle({"status": "dead"})
                return header["msg_id"]
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        await self._write(serialize_msg_to_ws_v1([*parts, *(buffers or [])], channel))
        return header["msg_id"]

    async def _write(self, frame: bytes) -> None:
        if self._socket is None:
            raise DeadlineError(
                f"rank {self.rank} on worker {self.worker.name} is not connected; attach the cluster again"
            )
        try:
            await self._socket.send_bytes(frame)
        except (aiohttp.ClientError, ConnectionError):
            self.mark_dead("lost: the connection to its worker broke")

    async def _receive(self) -> None:
        assert self._socket is not None
        try:
            async for frame in self._socket:
                if frame.type is aiohttp.WSMsgType.BINARY:
                    self._dispatch(frame.data)
        finally:
            # Whatever ended the receiving, a message that nobody can take included: nobody may wait for more.
            self.mark_dead("lost: its worker ended or cannot be reached")

    def _dispatch(self, frame: bytes) -> None:
        _, parts = deserialize_msg_from_ws_v1(frame)
        header, parent, content = json.loads(parts[0]), json.loads(parts[1]), json.loads(parts[3])
        kind = header["msg_type"]
        if kind == "status" and content["execution_state"] == "dead":
            self.mark_dead(content.get("cause", "ended for an unknown reason"))
        elif kind == "comm_msg" and content["comm_id"] == COMM_TARGET:
            self._records(content["data"], parts[4:])
        elif (execution := self._running.get(parent.get("msg_id", ""))) is not None:
            self._progress(execution, kind, content)

    def _records(self, data: dict[str, Any], buffers: list[bytes]) -> None:
        if self.on_records is not None:
            self.on_records(self.rank, data, buffers)

    def _progress(self, execution: _Execution, kind: str, content: dict[str, Any]) -> None:
        if kind.endswith("_reply"):
            execution.settle(content)
        elif kind in OUTPUT_TYPES and execution.sink is not None:
            execution.sink(self.rank, kind, content)


def _value(result: dict[str, Any]) -> Any:
    """Return what a user expression, a string of JSON, stands for; its ``repr`` is what the protocol carries."""
    return json.loads(ast.literal_eval(result["data"]["text/plain"]))
