"""The kernel of one rank, to which the driver connects with a websocket."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Container
from contextlib import aclosing
from typing import Any, TypeAlias

from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1

from farandole.driver.kernels.connection import RETRY_SECONDS, Connection
from farandole.driver.kernels.replies import (
    DEAD,
    OUTPUT_TYPES,
    UNANSWERED,
    UNKNOWN,
    Execution,
    Records,
    Reply,
    Sink,
    reply_of,
)
from farandole.driver.workers.journal import JournalInfo, WorkerJournal
from farandole.driver.workers.worker import GONE, Worker
from farandole.exceptions import DeadlineError, WorkerStartError
from farandole.protocol import CELL_PLACE, COMM_TARGET, RECORD_NUMBER, RECORD_RUN, RUN_MARK, Part
from farandole.runs.positions import JournalPosition
from farandole.times import parsed_time

Deaths: TypeAlias = Callable[[], None]
"""A callback that is called once, if the kernel dies before `RankKernel.close` is called."""


class RankKernel:
    """One kernel on a worker. All methods must be called on the event loop on which the object was created.

    A broken websocket is opened again unless the worker is lost. Messages that the kernel sends during a run while the
    websocket is down are read from the worker's journal. `last_number` shows which of these messages are new.
    """

    def __init__(
        self,
        worker: Worker,
        kernel_id: str,
        *,
        slot: int,
        on_records: Records | None = None,
        on_death: Deaths | None = None,
        idle_seconds: float = 0.0,
    ) -> None:
        self.worker = worker
        self.kernel_id = kernel_id
        self.slot = slot
        self.rank = -1
        self.last_rank = -1
        """The kernel's rank in the most recent message of the run. It differs from `rank` until the kernel has joined a
        new world."""
        self.prepared = False
        self.late = False
        """Whether the kernel was started after the cluster, so that it lacks the variables of earlier cells."""
        self.on_records = on_records
        self.on_death = on_death
        self.death: str | None = None
        self._died = asyncio.Event()
        self.idle_seconds = 0.0
        """How many seconds the kernel was idle before it died."""
        self._last_use = time.monotonic() - idle_seconds
        self._connection = Connection(worker, kernel_id, self)
        self._running: dict[str, Execution] = {}
        self._run = ""
        self._follower: asyncio.Task[None] | None = None
        self.last_number = 0
        """The number of the last received message in the journal of the run."""
        self._side_subshell: asyncio.Future[str] | None = None

    @property
    def alive(self) -> bool:
        """False as soon as the kernel is known to be dead."""
        return self.death is None

    @property
    def busy(self) -> bool:
        """True while the driver is waiting for a reply from the kernel."""
        return bool(self._running)

    @property
    def connected(self) -> bool:
        """False before the websocket is opened, and while a broken websocket is being reopened."""
        return self._connection.is_ready

    async def worker_answers(self) -> bool:
        """Return whether the worker answers on the websocket. It does so even if the kernel hangs."""
        return await self._connection.answers()

    async def ended(self) -> None:
        """Wait until the kernel is known to be dead."""
        await self._died.wait()

    async def reachable(self) -> None:
        """Wait until a broken websocket is open again or the kernel is known to be dead."""
        if self._connection.opened:
            await self._connection.ready()

    async def connect(self) -> None:
        """Open the websocket and start to receive messages."""
        await self._connection.open()

    async def close(self) -> None:
        """Close the websocket. The kernel keeps running, and its death is no longer reported."""
        self.on_death = None
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        await self._connection.close()

    async def execute(
        self,
        code: str,
        *,
        silent: bool = False,
        sink: Sink | None = None,
        expression: str = "",
        subshell: str | None = None,
        mark: dict[str, Any] | None = None,
        place: dict[str, int] | None = None,
    ) -> Reply:
        """Execute code and wait until it ends. An error in the code is not raised but returned in the reply.

        ``mark`` identifies the run and the request; see `farandole.protocol.RUN_MARK`. With a mark, the worker writes
        the kernel's messages to the run's journal. ``place`` is the place of the code in the notebook.
        """
        content = {
            "code": code,
            "silent": silent,
            "store_history": False,
            "user_expressions": {"value": expression} if expression else {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        execution = Execution(sink, mark["run"] if mark else "")
        if mark and mark["part"] == Part.BEGIN:
            self._run, self.last_number, self.last_rank = mark["run"], 0, self.rank
        metadata: dict[str, Any] = {RUN_MARK: {**mark, "rank": self.rank}} if mark else {}
        if place is not None:
            metadata[CELL_PLACE] = place
        message_id = await self._send(
            "shell", "execute_request", content, subshell=subshell, execution=execution, metadata=metadata
        )
        try:
            return self._reply(await execution.done)
        finally:
            self._running.pop(message_id, None)
            self._last_use = time.monotonic()

    async def evaluate(self, expression: str, *, subshell: str | None = None) -> Reply:
        """Evaluate an expression that returns a JSON string. The reply has the decoded value; no variable changes."""
        return await self.execute("", silent=True, expression=expression, subshell=subshell)

    async def follow(self, record: JournalInfo, sink: Sink, over: asyncio.Event | None = None) -> Reply:
        """Read all past and future messages of a run that another driver began, and return how the run's cell ended.

        The call returns early if ``over`` is set.
        """
        self._run, self.last_number, self.last_rank = record.run, 0, self.rank
        parts = {part: Execution(sink if part is Part.CELL else None, record.run) for part in Part}
        self._running.update({message: parts[part] for message, part in record.requests.items()})
        following = asyncio.create_task(self._follow(record.run))
        end = asyncio.create_task((over or asyncio.Event()).wait())
        try:
            await asyncio.wait([following, end], return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
        finally:
            following.cancel()
            end.cancel()
            await asyncio.wait([following, end])
            for message in record.requests:
                del self._running[message]
        parts[Part.CELL].settle(UNKNOWN)
        return self._reply(await parts[Part.CELL].done)

    async def interrupt(self) -> None:
        """Ask the worker's server to send SIGINT to the kernel."""
        await self.worker.interrupt_kernel(self.kernel_id)

    async def ping(self) -> Reply:
        """Check that the kernel is alive. The kernel's control thread replies even while a cell is running."""
        return self._reply(await self._control("kernel_info_request"))

    async def subshell(self) -> str:
        """Open a subshell and return its id.

        A subshell is a thread of the kernel that answers while the main thread is busy. Source: JEP 91.
        """
        reply = UNKNOWN
        while reply is UNKNOWN:
            reply = await self._control("create_subshell_request")
        return str(reply.get("subshell_id", ""))  # empty for a dead kernel, which executes nothing

    async def _control(self, kind: str) -> dict[str, Any]:
        execution = Execution(None)
        message_id = await self._send("control", kind, {}, execution=execution)
        try:
            return await execution.done
        finally:
            self._running.pop(message_id, None)

    async def side_subshell(self) -> str:
        """Return the id of the subshell that is reserved for calls while a cell is running."""
        if self._side_subshell is None:
            self._side_subshell = asyncio.ensure_future(self.subshell())
        return await asyncio.shield(self._side_subshell)

    async def kill(self) -> None:
        """Kill the kernel's process."""
        # Mark the kernel as dead first, so that tasks do not have to wait until the process has ended.
        self.mark_dead(UNANSWERED)
        try:
            await self.worker.stop_kernel(self.kernel_id)
        except WorkerStartError:
            self.mark_dead(GONE)

    def mark_dead(self, cause: str) -> None:
        """Record the cause of death, unless one is recorded already, and end the kernel's executions as dead."""
        if self.death is None:
            self.death = cause
            self._died.set()
            self.idle_seconds = 0.0 if self.busy else time.monotonic() - self._last_use
            if self.on_death is not None:
                self.on_death()
        for execution in self._running.values():
            execution.settle(DEAD)

    async def push(self, target: str, data: dict[str, Any], blob: bytes) -> None:
        """Send data and one binary buffer to the kernel in a ``comm_open`` message for this comm target."""
        content = {"comm_id": uuid.uuid4().hex, "target_name": target, "data": data}
        await self._send("shell", "comm_open", content, buffers=[blob])

    def _reply(self, content: dict[str, Any]) -> Reply:
        return reply_of(content, rank=self.rank, worker=self.worker.name, death=self.death, late=self.late)

    async def _send(
        self,
        channel: str,
        kind: str,
        content: dict[str, Any],
        *,
        subshell: str | None = None,
        execution: Execution | None = None,
        buffers: list[bytes] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Send a message to the kernel and return the message's id. Waits while a broken websocket is being reopened.

        If the kernel is dead, an ``execution`` ends as dead instead of being sent. Raises DeadlineError if the
        websocket was never opened.
        """
        if not self._connection.opened:
            raise DeadlineError(
                f"rank {self.rank} on worker {self.worker.name} is not connected; attach to the cluster again"
            )
        await self._connection.ready()
        header = self._connection.header(kind)
        if subshell is not None:
            header["subshell_id"] = subshell
        if execution is not None:
            self._running[header["msg_id"]] = execution
            if not self.alive:
                execution.settle(DEAD)
                return header["msg_id"]
        parts = [json.dumps(part).encode() for part in (header, {}, metadata or {}, content)]
        await self._connection.send(serialize_msg_to_ws_v1([*parts, *(buffers or [])], channel))
        return header["msg_id"]

    async def recover(self, found: WorkerJournal) -> None:
        """Resume after the websocket broke and its worker was reached again.

        The messages of a run are read from the worker's journal. The outcome of all other executions is unknown.
        """
        self._give_up_all_but(found.requests_of(self._run, self.kernel_id))
        if self._awaits(self._run) and (self._follower is None or self._follower.done()):
            self._follower = asyncio.create_task(self._follow(self._run), name=f"journal of rank {self.rank}")
        if self.kernel_id not in found.kernels:
            if self._follower is not None:
                await asyncio.wait([self._follower])
            self.mark_dead("ended while the driver was not connected")

    def _give_up_all_but(self, journaled: Container[str]) -> None:
        """End executions that are not in a journal, with an unknown outcome.

        Their replies are lost, because the kernel sends them to the session of the broken websocket.
        """
        for message, execution in self._running.items():
            if message not in journaled:
                execution.settle(UNKNOWN)

    def _awaits(self, run: str) -> bool:
        return bool(run) and any(one.run == run and not one.done.done() for one in self._running.values())

    async def _follow(self, run: str) -> None:
        """Read the journal of a run, starting after `last_number`, until all executions of the run have ended."""
        try:
            while self.alive and self._awaits(run):
                try:
                    async with aclosing(self.worker.follow(run, self.kernel_id, self.last_number)) as frames:
                        async for frame in frames:
                            self.hear(frame)
                    break
                except WorkerStartError:
                    found = await self.worker.find_again()
                    if isinstance(found, str):
                        self.mark_dead(found)
                    else:
                        await asyncio.sleep(RETRY_SECONDS)
        finally:
            for execution in self._running.values():
                if execution.run == run:
                    execution.settle(UNKNOWN)

    def hear(self, frame: bytes) -> None:
        """Process a message from the websocket or the journal."""
        _, parts = deserialize_msg_from_ws_v1(frame)
        metadata = json.loads(parts[2])
        number = metadata.get(RECORD_NUMBER)
        # The last messages of the previous run may still arrive now, numbered as in that run's journal.
        if number is not None and metadata[RECORD_RUN] == self._run:
            if number <= self.last_number:
                return
            self.last_number = number
        position = None if number is None else (self.kernel_id, int(number))
        header, parent, content = json.loads(parts[0]), json.loads(parts[1]), json.loads(parts[3])
        kind = header["msg_type"]
        if kind == "stream":
            # Output from a journal arrives long after the rank has printed it.
            content["printed"] = parsed_time(header.get("date"))
        if kind == "status" and content["execution_state"] == "dead":
            # While the journal is being read, ignore a death that the websocket reports. The journal will report the
            # same death after all other messages.
            if number is not None or self._follower is None or self._follower.done():
                self.mark_dead(content.get("cause", "ended for an unknown reason"))
        elif kind == "comm_msg" and content["comm_id"] == COMM_TARGET:
            self._records(content["data"], parts[4:], position)
        elif (execution := self._running.get(parent.get("msg_id", ""))) is not None:
            self._progress(execution, kind, content, position)

    def _records(self, data: dict[str, Any], buffers: list[bytes], position: JournalPosition | None) -> None:
        rank = data["rank"] if data["run"] else self.rank
        if data["run"] == self._run:
            self.last_rank = rank
        if self.on_records is not None:
            self.on_records(rank, data, buffers, position)

    def _progress(
        self, execution: Execution, kind: str, content: dict[str, Any], position: JournalPosition | None
    ) -> None:
        if kind.endswith("_reply"):
            execution.settle(content)
        elif kind in OUTPUT_TYPES and execution.sink is not None:
            execution.sink(self.last_rank if execution.run else self.rank, kind, content, position)
