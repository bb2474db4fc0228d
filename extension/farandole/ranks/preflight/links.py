"""Measures the network between two ranks: one listens at the address that Gloo would use, the other connects."""

from __future__ import annotations

import functools
import socket
import statistics
import time
from contextlib import closing
from typing import Any

PING_BYTES = 64
PINGS = 50
BLOCK_BYTES = 2**20
SECONDS = 10.0
"""Timeout for each operation on the connection."""


class Listener:
    """Listening socket of one rank, for one peer. Each measurement gets a new one, without old queued connections."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def open(self, host: str) -> int:
        """Listen at ``host`` and return the port; an earlier socket is closed."""
        self.close()
        self._socket = socket.create_server((host, 0))
        self._socket.settimeout(SECONDS)
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def serve(self, seconds: float) -> float:
        """Serve one `dial`; return the bytes per second received from it."""
        with closing(self._accept()) as peer:
            echo(peer)
        with closing(self._accept()) as peer:
            rate = receive(peer, seconds)
        with closing(self._accept()) as peer:
            send(peer)
        return rate

    def _accept(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("this rank does not listen")
        peer, _ = self._socket.accept()
        peer.settimeout(SECONDS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer


@functools.cache
def listener() -> Listener:
    """Return the listener of this process."""
    return Listener()


def open_listener(host: str) -> dict[str, Any]:
    """Listen at ``host``, the address that peers use for this rank; return ``port`` or ``error``."""
    try:
        return {"port": listener().open(host)}
    except OSError as exc:
        return {"error": str(exc)}


def serve(seconds: float) -> dict[str, Any]:
    """Serve one peer and close; return the ``bytes_per_second`` received from it, or ``error``."""
    try:
        return {"bytes_per_second": listener().serve(seconds)}
    except OSError as exc:
        return {"error": str(exc)}
    finally:
        listener().close()


def dial(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Measure the link to a listener: ``latency`` (median, s) and ``bytes_per_second`` from it, or ``error``."""
    try:
        with closing(_connect(host, port)) as peer:
            latency = ping(peer)
        with closing(_connect(host, port)) as peer:
            send(peer)
        with closing(_connect(host, port)) as peer:
            return {"latency": latency, "bytes_per_second": receive(peer, seconds)}
    except OSError as exc:
        return {"error": str(exc)}


def ping(peer: socket.socket) -> float:
    """Return the median round-trip time of a small message in seconds."""
    message = bytes(PING_BYTES)
    trips = []
    for _ in range(PINGS):
        begun = time.perf_counter()
        peer.sendall(message)
        if not _read(peer, PING_BYTES):
            raise ConnectionError("the peer closed the connection")
        trips.append(time.perf_counter() - begun)
    return statistics.median(trips)


def echo(peer: socket.socket) -> None:
    """Echo small messages until the peer closes."""
    while message := _read(peer, PING_BYTES):
        peer.sendall(message)


def send(peer: socket.socket) -> None:
    """Send until the peer closes. Only the receiver can measure: sent data may still be in buffers."""
    block = bytes(BLOCK_BYTES)
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            peer.sendall(block)
    except (BrokenPipeError, ConnectionResetError):
        return
    raise TimeoutError("the peer did not end the measurement in time")


def receive(peer: socket.socket, seconds: float) -> float:
    """Receive for ``seconds`` after the first bytes; return bytes per second."""
    buffer = bytearray(BLOCK_BYTES)
    if not peer.recv_into(buffer):
        raise ConnectionError("the peer sent nothing")
    begun, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < seconds:
        if not (got := peer.recv_into(buffer)):
            raise ConnectionError("the peer closed the connection")
        count += got
    return count / passed


def _connect(host: str, port: int) -> socket.socket:
    peer = socket.create_connection((host, port), timeout=SECONDS)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _read(peer: socket.socket, count: int) -> bytes:
    """Return exactly ``count`` bytes, or none if the peer has closed."""
    message = b""
    while len(message) < count:
        received = peer.recv(count - len(message))
        if not received:
            return b""
        message += received
    return message
