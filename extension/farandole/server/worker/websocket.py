"""The websocket connection between a rank's kernel and its driver."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import suppress
from typing import Any

import zmq
from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.websocket import WebSocketClosedError

from farandole.frames import INVALID, PROTOCOL, check_frame, check_parts, close_reason
from farandole.protocol import NO_OUTPUT, RUN_MARK, Part
from farandole.reading import parse_json
from farandole.server.journal.journal import Journal
from farandole.server.journal.journals import Journals
from farandole.server.worker.deaths import explain_exit, oom_kills


class RankWebsocketConnection(ZMQChannelsWebsocketConnection):
    """Jupyter Server's websocket connection, optimized for many kernels and extended with a journal.

    - Small messages are sent without delay (TCP_NODELAY).
    - A cell without output causes one message instead of four, because the echo of the code and the busy and idle
      statuses are not forwarded. The reply is held back until the idle status arrives, so that the reply is always the
      last message of a cell. The reply of a cell without output is forwarded at once.
    - The message that reports a kernel's death includes the cause.
    - Messages of a run are recorded in a `Journal`. If the driver disconnects during a run, the connection to the
      kernel stays open until the run ends, because the kernel sends replies only to the connection that made the
      request.
    """

    has_driver = True
    _oom_kills_before = 0
    _replaces_server_stream = False
    _noted = 0.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._replies: dict[str, tuple[Any, list[bytes]]] = {}
        self._idle: set[str] = set()
        self._open: set[str] = set()
        """The message ids of execute requests without a reply. The kernel may reply twice to an interrupted request."""
        self._unconfirmed: dict[bytes, Journal] = {}
        """The ended journals whose driver has not answered the ping behind their last message, by the ping's data."""

    @property
    def _journals(self) -> Journals:
        journals: Journals = self.multi_kernel_manager.journals
        return journals

    @property
    def _journal(self) -> Journal | None:
        """The journal of the active run if the run was started over this connection, otherwise None."""
        journal = self._journals.active(self.kernel_id)
        return journal if journal is not None and journal.owner is self else None

    @classmethod
    async def close_all(cls) -> None:
        """Close all connections when the server stops, including connections without a driver."""
        for connection in list(cls._open_sockets):
            if isinstance(connection, cls):
                connection.end_stopped_run()
        await super().close_all()  # type: ignore[no-untyped-call]

    def connect(self) -> Any:
        """Connect the kernel's channels to the websocket. Messages from the driver are read after that."""
        self._oom_kills_before = oom_kills()
        self.websocket_handler.set_nodelay(True)
        self._watch_pongs()
        # 0 removes the limit on queued messages. Above a limit, ZeroMQ drops messages, possibly the end of a cell.
        self.kernel_manager.context.rcvhwm = 0
        connected = super().connect()
        if connected is not None:
            connected.add_done_callback(self._replace_server_stream)
        return connected

    def disconnect(self) -> Any:
        """Close the kernel's channels, or keep them open without a driver if a run is active."""
        self.has_driver = False
        if self._close_future.done():
            return None
        if self._journal is not None:
            self.log.info("the driver of rank %s is disconnected; its run continues and is recorded", self.kernel_id)
            return None
        if self._replaces_server_stream:
            self._replaces_server_stream = False
            self._set_server_stream(zmq.SUBSCRIBE)
        self.multi_kernel_manager.transfer_to_server(self)
        self._journals.abandon(self)
        return super().disconnect()  # type: ignore[no-untyped-call]

    def _replace_server_stream(self, _connected: object) -> None:
        # Jupyter Server subscribes to all output of the kernel to track the kernel's activity. While this connection is
        # open, it tracks the activity itself, so the server's subscription is cancelled, which halves the server's work
        # per cell. The server needs its subscription until the kernel has started, because it must detect the start.
        if self.channels:
            self._replaces_server_stream = True
            self._set_server_stream(zmq.UNSUBSCRIBE)

    def _set_server_stream(self, option: int) -> None:
        stream = getattr(self.kernel_manager, "_activity_stream", None)
        if stream is not None and not stream.socket.closed:
            stream.socket.setsockopt(option, b"")

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Forward a message from the driver to the kernel. An invalid message closes the connection."""
        request = None
        try:
            check_frame(incoming_msg, self.subprotocol)
            if self.channels and self.subprotocol == PROTOCOL:
                request = self._take_request(incoming_msg)
        except ValueError as exc:
            self.log.warning("refused a message of a driver: %s", exc)
            self.websocket_handler.close(INVALID, close_reason(exc))
            return
        if request is not None:
            self._open.add(request["msg_id"])
        super().handle_incoming_message(incoming_msg)
        if request is not None:
            # Without the flush, the message would be sent in the next iteration of the event loop.
            self.channels["shell"].flush(zmq.POLLOUT)
            # A rank's kernel does not report that it is busy.
            self._note_state(request, "busy")

    def _take_request(self, frame: bytes) -> dict[str, Any] | None:
        """Return the header of a request to execute code, or None. Record the run to which the request belongs."""
        _, start, parent, metadata, content, *_ = check_parts(frame)
        header: dict[str, Any] = json.loads(frame[start:parent])
        if header["msg_type"] != "execute_request":
            return None
        if (mark := parse_json(frame[metadata:content], "the metadata").get(RUN_MARK)) is not None:
            self._journals.note_request(self.kernel_id, header["msg_id"], mark, self)
        return header

    def handle_outgoing_message(self, stream: Any, outgoing_msg: Any) -> None:
        """Record a message from the kernel and forward it to the driver, except for messages that no driver needs."""
        parts: Any = self.session.feed_identities(outgoing_msg)[1][1:]
        stream = self.channels[stream] if isinstance(stream, str) else stream
        self._note_activity()
        kind = json.loads(parts[0])["msg_type"]
        if kind == "execute_reply":
            self._take_reply(stream, parts)
        elif kind == "status":
            self._note_status(parts)
        elif kind != "execute_input":
            self._forward(stream.channel, kind, parts)

    def _forward(self, channel: str, kind: str, parts: list[bytes]) -> None:
        journal = self._journals.of_message(self.kernel_id, kind, parts)
        if journal is None:
            self._send(serialize_msg_to_ws_v1(parts, channel))
        elif journal.owner is self and not journal.ended:
            self._send(journal.add(channel, kind, parts))
            if kind == "execute_reply" and journal.requests[json.loads(parts[1])["msg_id"]] == Part.END:
                self._end(journal, completed=True)

    def _send(self, frame: bytes) -> None:
        if self.has_driver:
            try:
                self.write_message(frame, binary=True)
            except WebSocketClosedError:
                self.log.debug("the driver of rank %s has just disconnected", self.kernel_id)

    def _end(self, journal: Journal, *, completed: bool) -> None:
        self._journals.end(journal, completed=completed)
        if self.has_driver:
            self._ask_for_receipt(journal)
        else:
            # `disconnect` closes a channel whose callback is running now, so the call is deferred.
            asyncio.get_running_loop().call_soon(self.disconnect)

    def _ask_for_receipt(self, journal: Journal) -> None:
        """Send a ping behind the last message of a run. The driver answers it after it has received that message.

        Without an answer, the message may be lost: if the network of a driver fails, its websocket stays open for
        minutes.
        """
        data = uuid.uuid4().bytes
        self._unconfirmed[data] = journal
        with suppress(WebSocketClosedError):
            self.websocket_handler.ping(data)

    def _watch_pongs(self) -> None:
        on_pong: Any = self.websocket_handler.on_pong

        def take_pong(data: bytes) -> None:
            on_pong(data)
            if (journal := self._unconfirmed.pop(data, None)) is not None:
                journal.end_was_read = True

        self.websocket_handler.on_pong = take_pong  # type: ignore[method-assign]

    def _note_activity(self) -> None:
        # An update per second is sufficient to detect idle servers.
        if time.monotonic() - self._noted > 1:
            self._noted = time.monotonic()
            self.multi_kernel_manager.last_kernel_activity = self.kernel_manager.last_activity = utcnow()

    def _take_reply(self, stream: Any, parts: list[bytes]) -> None:
        """Forward a reply if all output of this and earlier requests has arrived. Otherwise, hold it back."""
        request = json.loads(parts[1])["msg_id"]
        if request not in self._open:
            return
        if request in self._idle:
            self._idle.remove(request)
            self._answer(stream, parts)
        else:
            self._replies[request] = (stream, parts)
            self._answer_early()

    def _answer(self, stream: Any, parts: list[bytes]) -> None:
        self._open.remove(json.loads(parts[1])["msg_id"])
        self._forward(stream.channel, "execute_reply", parts)

    def _answer_early(self) -> None:
        """Forward held replies, oldest first, up to the first one whose request may have published output."""
        while self._replies:
            request, (stream, parts) = next(iter(self._replies.items()))
            if NO_OUTPUT not in json.loads(parts[2]):
                return
            del self._replies[request]
            self._answer(stream, parts)
            # Record the idle status now, because the driver may disconnect before the status arrives.
            self._note_state(json.loads(parts[1]), "idle")

    def _note_status(self, parts: list[bytes]) -> None:
        parent, state = json.loads(parts[1]), json.loads(parts[3])["execution_state"]
        if parent.get("msg_type") != "execute_request":
            return
        # Requests from other connections also cause idle statuses here, but their replies go to those connections.
        own = parent["session"] == self.session.session
        if own and parent["msg_id"] not in self._open:
            return
        self._note_state(parent, state)
        if state != "idle" or not own:
            return
        if (reply := self._replies.pop(parent["msg_id"], None)) is not None:
            self._answer(*reply)
            self._answer_early()
        else:
            self._idle.add(parent["msg_id"])

    def _note_state(self, parent: dict[str, Any], state: str) -> None:
        self.multi_kernel_manager.note_status(self.kernel_id, parent, state, observer=self)
        if self.kernel_manager.execution_state != state:
            self.kernel_manager.execution_state = state

    def on_restart_failed(self) -> None:
        """Report to the driver that the kernel is dead, and why."""
        process = getattr(self.kernel_manager.provisioner, "process", None)
        cause = explain_exit(
            process.poll() if process is not None else None,
            out_of_memory=oom_kills() > self._oom_kills_before,
        )
        self.log.error("rank %s is dead: %s", self.kernel_id, cause)
        self.channels["iopub"].flush()
        self._send_dead(cause)

    def end_stopped_run(self) -> None:
        """End the active run of this connection, if any, because the kernel is being stopped."""
        if self._journal is not None:
            self._send_dead("stopped")

    def _send_dead(self, cause: str) -> None:
        message = self.session.msg("status", {"execution_state": "dead", "cause": cause})
        parts = [self.session.pack(message[part]) for part in ("header", "parent_header", "metadata", "content")]
        if (journal := self._journal) is None:
            self._send(serialize_msg_to_ws_v1(parts, "iopub"))
        else:
            self._send(journal.add("iopub", "status", parts))
            self._end(journal, completed=False)
