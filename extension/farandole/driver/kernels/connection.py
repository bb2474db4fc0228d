"""The websocket to one kernel. If it breaks while the worker can still be reached, it is opened again."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from typing import Protocol

import aiohttp

from farandole.driver.workers.journal import WorkerJournal
from farandole.driver.workers.worker import GONE, LOST_SECONDS, PROBE_SECONDS, Worker
from farandole.exceptions import WorkerStartError

SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
RETRY_SECONDS = 0.5


class Listener(Protocol):
    """Receives the messages of a connection, and is notified if the kernel is lost."""

    @property
    def alive(self) -> bool:
        """False as soon as the kernel is known to be dead."""

    def hear(self, frame: bytes) -> None:
        """Process a frame from the kernel."""

    async def recover(self, found: WorkerJournal) -> None:
        """Resume after a broken connection. Replies to earlier requests are lost unless they are in the journal."""

    def mark_dead(self, cause: str) -> None:
        """Record that the kernel is lost, together with the cause."""


class Connection:
    """The websocket to one kernel. All methods must be called on one event loop."""

    def __init__(self, worker: Worker, kernel_id: str, listener: Listener) -> None:
        self.session = ""
        """The session id, which is new for each websocket. The kernel replies only to the session of the request."""
        self._worker = worker
        self._kernel_id = kernel_id
        self._listener = listener
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._receiver: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._pong = asyncio.Event()
        self._closing = False

    @property
    def opened(self) -> bool:
        """Whether the websocket has been opened at least once."""
        return self._socket is not None

    async def open(self) -> None:
        """Open the websocket and start to receive messages."""
        await self._open()
        self._receiver = asyncio.create_task(self._receive(), name=f"kernel {self._kernel_id}")

    async def close(self) -> None:
        """Close the websocket. The kernel keeps running."""
        self._closing = True
        if self._receiver is not None and not self._ready.is_set():
            self._receiver.cancel()
        if self._socket is not None:
            await self._socket.close()
        if self._receiver is not None:
            await asyncio.wait([self._receiver])

    @property
    def is_ready(self) -> bool:
        """True if the websocket is open or permanently closed; false before it is opened and while it is reopened."""
        return self._ready.is_set()

    async def ready(self) -> None:
        """Wait until the websocket is open or has been closed permanently."""
        await self._ready.wait()

    async def answers(self) -> bool:
        """Return whether the worker's server answers a ping on the open websocket within 5 s.

        It answers even if the kernel hangs, but not if the network has failed and nobody has noticed yet.
        """
        self._pong.clear()
        if self._socket is not None and self.is_ready:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError, TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._socket.ping()
                    await self._pong.wait()
        return self._pong.is_set()

    def header(self, kind: str) -> dict[str, str]:
        """Return the header of a new message, with the session id that determines where the kernel sends its reply."""
        return {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self.session,
            "username": "farandole",
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": "5.5",
        }

    async def send(self, frame: bytes) -> None:
        """Send a frame. If the connection breaks, the frame is lost and the receiving task calls `Listener.recover`."""
        assert self._socket is not None
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.send_bytes(frame)

    async def _open(self) -> None:
        self.session = uuid.uuid4().hex
        starting = not self.opened
        self._socket = await self._worker.kernel_socket(self._kernel_id, self.session, SUBPROTOCOL, starting=starting)
        self._ready.set()

    async def _receive(self) -> None:
        try:
            while self._listener.alive and not self._closing:
                await self._hear_all()
                if self._listener.alive and not self._closing:
                    await self._open_again()
        finally:
            # However the receiving task ends, even with a bug in a listener, nothing may keep waiting for messages.
            self._listener.mark_dead(GONE)
            self._ready.set()

    async def _hear_all(self) -> None:
        assert self._socket is not None
        async for frame in self._socket:
            if frame.type is aiohttp.WSMsgType.BINARY:
                self._listener.hear(frame.data)
            elif frame.type is aiohttp.WSMsgType.PONG:
                self._pong.set()
            elif frame.type is aiohttp.WSMsgType.PING:
                with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                    await self._socket.pong(frame.data)

    async def _open_again(self) -> None:
        self._ready.clear()
        left = LOST_SECONDS
        while self._listener.alive and not self._ready.is_set() and left > 0:
            # The time during which the worker cannot be reached does not count, even if the network goes repeatedly.
            found = await self._worker.find_again()
            answered = time.monotonic()
            if isinstance(found, str):
                self._listener.mark_dead(found)
                return
            await self._listener.recover(found)
            if self._listener.alive:
                await self._try_to_open()
            left -= time.monotonic() - answered
        if not self._ready.is_set():
            self._listener.mark_dead(
                f"lost: its worker answers, but did not open a channel to its kernel for {LOST_SECONDS:g} s"
            )

    async def _try_to_open(self) -> None:
        try:
            await self._open()
        except WorkerStartError:
            await asyncio.sleep(RETRY_SECONDS)
