"""The websocket between a rank's kernel and its driver."""

from __future__ import annotations

import json
import time
from typing import Any

import zmq
from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from farandole.server.deaths import explain_exit, oom_kills


class RankWebsocketConnection(ZMQChannelsWebsocketConnection):
    """Jupyter Server's connection, made fit for fan-out: one message a cell where there were four.

    Small messages leave at once (TCP_NODELAY). The echo of the code and the kernel's busy and idle stay at home: a
    cell's reply is held until its idle has come, so it is the last that the driver gets of a cell. The notice of a
    kernel's death carries its cause.
    """

    _oom_kills_before = 0
    _watching = False
    _noted = 0.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._replies: dict[str, tuple[Any, list[bytes]]] = {}
        self._idle: set[str] = set()

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
        """Let go of the kernel's channels."""
        if self._watching:
            self._watching = False
            self._server_watches(zmq.SUBSCRIBE)
        self.multi_kernel_manager.hand_over(self)
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
            self._forward(stream, parts)

    def _forward(self, stream: Any, parts: list[bytes]) -> None:
        self._on_zmq_reply(stream, parts)  # type: ignore[no-untyped-call]

    def _note_activity(self) -> None:
        # Once a second is enough for those who look for idle servers.
        if time.monotonic() - self._noted > 1:
            self._noted = time.monotonic()
            self.multi_kernel_manager.last_kernel_activity = self.kernel_manager.last_activity = utcnow()

    def _hold(self, stream: Any, parts: list[bytes]) -> None:
        request = json.loads(parts[1])["msg_id"]
        if request in self._idle:
            self._idle.remove(request)
            self._forward(stream, parts)
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
            self._forward(*reply)
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
        message = self.session.msg("status", {"execution_state": "dead", "cause": cause})
        self.write_message(serialize_msg_to_ws_v1(message, "iopub", self.session.pack), binary=True)
