"""A client that uses a kernel on a notebook server behind the hub in the same way as a notebook page."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import websocket

from hub.process import local_session
from tests.clients.hosts import connect

if TYPE_CHECKING:
    from types import TracebackType

CONNECT_DEADLINE = 60.0
SILENT_SECONDS = 20.0
"""The client reconnects if it has not read from the connection for this long.

The server pings its clients every 30 s and closes the connection to a client that does not respond.
"""


class CellError(RuntimeError):
    """Raised when a cell fails or does not finish in time."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The source and the tags of one code cell."""

    source: str
    tags: tuple[str, ...] = ()


class RemoteKernel:
    """A context manager for a new kernel of the notebook ``path`` on the server at the URL ``address``."""

    def __init__(self, address: str, token: str, path: str) -> None:
        """Start the kernel by creating a session for the notebook."""
        self._address = address
        self._path = path
        self._token = token
        self._session = local_session()
        self._session.headers["Authorization"] = f"token {token}"
        body = {"path": path, "name": path, "type": "notebook", "kernel": {"name": "python3"}}
        answer = self._session.post(f"{address}/api/sessions", json=body, timeout=CONNECT_DEADLINE)
        answer.raise_for_status()
        self._kernel_id = answer.json()["kernel"]["id"]
        self._client = uuid.uuid4().hex

    def __enter__(self) -> Self:
        """Open the websocket to the kernel's channels."""
        parts = urlsplit(self._address)
        where = f"ws://{parts.netloc}{parts.path}/api/kernels/{self._kernel_id}/channels?session_id={self._client}"
        self._socket = websocket.create_connection(
            where,
            header=[f"Authorization: token {self._token}"],
            timeout=CONNECT_DEADLINE,
            socket=connect(where, CONNECT_DEADLINE),
        )
        self._listened = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the websocket and shut the kernel down."""
        self._socket.close()
        self._session.delete(f"{self._address}/api/kernels/{self._kernel_id}", timeout=CONNECT_DEADLINE)

    def reconnect(self) -> None:
        """Open a new websocket, because the server closes one that has not been read for too long."""
        self._socket.close()
        self.__enter__()

    def restart(self) -> None:
        """Restart the kernel, as the menu of JupyterLab does, and connect to the new process."""
        self._post("restart")
        self.reconnect()

    def interrupt(self) -> None:
        """Interrupt the kernel, as the menu of JupyterLab does."""
        self._post("interrupt")

    def _post(self, action: str) -> None:
        address = f"{self._address}/api/kernels/{self._kernel_id}/{action}"
        self._session.post(address, timeout=CONNECT_DEADLINE).raise_for_status()

    def code_cells(self) -> list[Cell]:
        """Return the code cells of the notebook as it is stored on the server. Empty cells are omitted."""
        answer = self._session.get(f"{self._address}/api/contents/{self._path}", timeout=CONNECT_DEADLINE)
        answer.raise_for_status()
        cells = answer.json()["content"]["cells"]
        return [
            Cell(source=_text(cell["source"]), tags=tuple(cell["metadata"].get("tags", ())))
            for cell in cells
            if cell["cell_type"] == "code" and _text(cell["source"]).strip()
        ]

    def execute(self, code: str, *, deadline: float) -> str:
        """Run ``code`` and return its output as plain text. Raises `CellError` if it fails or takes too long."""
        return self.finish(self.begin(code), code, deadline=deadline)

    def finish(self, request: str, code: str, *, deadline: float) -> str:
        """Wait until the request from `begin` is finished, and return its output.

        Raises `CellError` if the code fails or is not finished after ``deadline`` seconds.
        """
        end = time.monotonic() + deadline
        output: list[str] = []
        replied = idle = False
        while not (replied and idle):
            message = self._receive(end, code)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            output.append(_output_text(kind, content))
            replied = replied or kind == "execute_reply"
            idle = idle or (kind == "status" and content["execution_state"] == "idle")
            if kind == "execute_reply" and content["status"] != "ok":
                raise CellError(f"This cell failed:\n{code}\n{''.join(output)}\n{_error_text(content)}")
        return "".join(output)

    def begin(self, code: str) -> str:
        """Send a request to execute ``code``, and return the id of the request, which `finish` needs."""
        if time.monotonic() - self._listened > SILENT_SECONDS:
            self.reconnect()
        request = uuid.uuid4().hex
        header = {"msg_id": request, "msg_type": "execute_request", "session": self._client, "username": ""}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        # If a cell fails, the kernel would otherwise abort queued requests, and with them possibly the next cell.
        content["stop_on_error"] = False
        message = {"header": {**header, "version": "5.3"}, "parent_header": {}, "metadata": {}, "content": content}
        self._socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return request

    def _receive(self, end: float, code: str) -> dict[str, Any]:
        while not (frame := self._frame(end, code)):
            # No message is lost, because the server keeps the messages for this client until it is connected again.
            self.reconnect()
        self._listened = time.monotonic()
        message: dict[str, Any] = _decode(frame)
        return message

    def _frame(self, end: float, code: str) -> str | bytes:
        """Return the next frame, or an empty one if the connection is closed. Raises `CellError` after ``end``."""
        self._socket.settimeout(max(0.1, end - time.monotonic()))
        try:
            frame: str | bytes = self._socket.recv()
        except websocket.WebSocketConnectionClosedException:
            frame = ""
        except websocket.WebSocketTimeoutException as exc:
            raise CellError(f"This cell did not end in time:\n{code}") from exc
        if not frame and time.monotonic() > end:
            raise CellError(f"This cell did not end in time:\n{code}")
        return frame


def _decode(frame: str | bytes) -> Any:
    """Return the message in a frame. A binary frame also contains offsets and buffers. The buffers are ignored."""
    if isinstance(frame, str):
        return json.loads(frame)
    count = int.from_bytes(frame[:4], "big")
    start = int.from_bytes(frame[4:8], "big")
    end = int.from_bytes(frame[8:12], "big") if count > 1 else len(frame)
    return json.loads(frame[start:end])


def _text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _output_text(kind: str, content: dict[str, Any]) -> str:
    if kind == "stream":
        return str(content["text"])
    if kind in ("execute_result", "display_data"):
        text = _text(content["data"].get("text/plain", ""))
        return f"{text}\n" if text else ""
    return ""


def _error_text(content: dict[str, Any]) -> str:
    return "\n".join(content.get("traceback", [])) or f"{content.get('ename')}: {content.get('evalue')}"
