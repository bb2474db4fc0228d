"""The websocket between a rank's kernel and its driver."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import zmq
from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.websocket import WebSocketClosedError

from farandole.protocol import RUN_MARK, Part
from farandole.server.journal.journal import Journal
from farandole.server.journal.journals import Journals
from farandole.server.worker.deaths import explain_exit, oom_kills


class RankWebsocketConnection(ZMQChannelsWebsocketConnection):
    """Jupyter Server's connection, made fit for fan-out: one message a cell where there were four.

    Small messages leave at once (TCP_NODELAY). The echo of the code and the kernel's busy and idle stay at home: a
    cell's reply is held until its idle has come, so it is the last that the driver gets of a cell. The notice of a
    kernel's death carries its cause.

    What belongs to a run is recorded on its way, see `journal.Journal`. The kernel answers a request only to
    the connection that made it; so one that loses its driver in a run goes on without, until the run has ended.
    """

    led = True
    _oom_kills_before = 0
    _watching = False
    _noted = 0.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._replies: dict[str, tuple[Any, list[bytes]]] = {}
        self._idle: set[str] = set()

    @property
    def _records(self) -> Journals:
        records: Journals = self.multi_kernel_manager.records
        return records

    @property
    def _record(self) -> Journal | None:
        """The run that goes on and was begun here."""
        record = self._records.open_of(self.kernel_id)
        return record if record is not None and record.owner is self else None

    @classmethod
    async def close_all(cls) -> None:
        """Close all connections of a server that stops, also those that only record."""
        for connection in list(cls._open_sockets):
            if isinstance(connection, cls):
                connection.tell_stopped()
        await super().close_all()  # type: ignore[no-untyped-call]

    def connect(self) -> Any:
        """Connect the kernel's channels to the websocket; no message of the driver is read before that is done."""
        self._oom_kills_before = oom_kills()
        self.websocket_handler.set_nodelay(True)
        # Without a limit for what waits to be read: beyond it output would be dropped, and with it a cell's end.
        self.kernel_manager.context.rcvhwm = 0
        connected = super().connect()
        if connected is not None:
            connected.add_done_callback(self._take_over)
        return connected

    def disconnect(self) -> Any:
        """Let go of the kernel's channels, or go on without a driver where a run does."""
        self.led = False
        if self._close_future.done():
            return None
        if self._record is not None:
            self.log.info("the driver of rank %s is gone; its run goes on and is recorded", self.kernel_id)
            return None
        if self._watching:
            self._watching = False
            self._server_watches(zmq.SUBSCRIBE)
        self.multi_kernel_manager.hand_over(self)
        self._records.abandon(self)
        return super().disconnect()  # type: ignore[no-untyped-call]

    def _take_over(self, _connected: object) -> None:
        # The server reads all output a second time to see that the kernel is active. This connection sees it too, so
        # the server may pause meanwhile: that halves what a cell costs it. Until here it was needed, to see the start.
        if self.channels:
            self._watching = True
            self._server_watches(zmq.UNSUBSCRIBE)

    def _server_watches(self, option: int) -> None:
        stream = getattr(self.kernel_manager, "_activity_stream", None)
        if stream is not None and not stream.socket.closed:
            stream.socket.setsockopt(option, b"")

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Pass a message of the driver on to the kernel."""
        if self.channels and isinstance(incoming_msg, bytes) and RUN_MARK.encode() in incoming_msg:
            _, parts = deserialize_msg_from_ws_v1(incoming_msg)
            if (mark := json.loads(parts[2]).get(RUN_MARK)) is not None:
                self._records.note(self.kernel_id, json.loads(parts[0])["msg_id"], mark, self)
        super().handle_incoming_message(incoming_msg)

    def handle_outgoing_message(self, stream: Any, outgoing_msg: Any) -> None:
        """Send a message of the kernel to the driver, or keep it at home."""
        parts: Any = self.session.feed_identities(outgoing_msg)[1][1:]
        stream = self.channels[stream] if isinstance(stream, str) else stream
        self._note_activity()
        kind = json.loads(parts[0])["msg_type"]
        if kind == "execute_reply":
            self._hold(stream, parts)
        elif kind == "status":
            self._note_status(parts)
        elif kind != "execute_input":
            self._forward(stream.channel, kind, parts)

    def _forward(self, channel: str, kind: str, parts: list[bytes]) -> None:
        record = self._records.of(self.kernel_id, kind, parts)
        if record is None:
            self._send(serialize_msg_to_ws_v1(parts, channel))
        elif record.owner is self and not record.ended:
            self._send(record.take(channel, kind, parts))
            if kind == "execute_reply" and record.requests[json.loads(parts[1])["msg_id"]] == Part.END:
                self._end(record, done=True)

    def _send(self, frame: bytes) -> None:
        if self.led:
            try:
                self.write_message(frame, binary=True)
            except WebSocketClosedError:
                self.log.debug("the driver of rank %s has just gone", self.kernel_id)

    def _end(self, record: Journal, *, done: bool) -> None:
        self._records.end(record, done=done)
        if not self.led:
            # Not at once: this is called from a channel that would be closed.
            asyncio.get_running_loop().call_soon(self.disconnect)

    def _note_activity(self) -> None:
        # Once a second is enough for those who look for idle servers.
        if time.monotonic() - self._noted > 1:
            self._noted = time.monotonic()
            self.multi_kernel_manager.last_kernel_activity = self.kernel_manager.last_activity = utcnow()

    def _hold(self, stream: Any, parts: list[bytes]) -> None:
        request = json.loads(parts[1])["msg_id"]
        if request in self._idle:
            self._idle.remove(request)
            self._forward(stream.channel, "execute_reply", parts)
        else:
            self._replies[request] = (stream, parts)

    def _note_status(self, parts: list[bytes]) -> None:
        parent, state = json.loads(parts[1]), json.loads(parts[3])["execution_state"]
        if parent.get("msg_type") != "execute_request":
            return
        self.multi_kernel_manager.note_status(self.kernel_id, parent, state, observer=self)
        if self.kernel_manager.execution_state != state:
            self.kernel_manager.execution_state = state
        # Other connections' idles come here too, their replies do not.
        if state != "idle" or parent["session"] != self.session.session:
            return
        if (reply := self._replies.pop(parent["msg_id"], None)) is not None:
            stream, parts = reply
            self._forward(stream.channel, "execute_reply", parts)
        else:
            self._idle.add(parent["msg_id"])

    def on_restart_failed(self) -> None:
        """Tell the driver that the kernel is dead, and why."""
        process = getattr(self.kernel_manager.provisioner, "process", None)
        cause = explain_exit(
            process.poll() if process is not None else None,
            out_of_memory=oom_kills() > self._oom_kills_before,
        )
        self.log.error("rank %s is dead: %s", self.kernel_id, cause)
        self.channels["iopub"].flush()
        self._tell_dead(cause)

    def tell_stopped(self) -> None:
        """End the run that was begun here: the kernel was stopped."""
        if self._record is not None:
            self._tell_dead("stopped")

    def _tell_dead(self, cause: str) -> None:
        message = self.session.msg("status", {"execution_state": "dead", "cause": cause})
        parts = [self.session.pack(message[part]) for part in ("header", "parent_header", "metadata", "content")]
        if (record := self._record) is None:
            self._send(serialize_msg_to_ws_v1(parts, "iopub"))
        else:
            self._send(record.take("iopub", "status", parts))
            self._end(record, done=False)
