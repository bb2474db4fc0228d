"""Measures the network between two ranks.

One rank listens at the address that Gloo would use, and the other rank connects to it.
"""

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
"""Timeout in seconds for each operation on a connection."""


class Listener:
    """Listening socket of one rank, for one peer.

    Each measurement opens a new socket, so that no old connections are queued.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None

    def open(self, host: str) -> int:
        """Close any earlier socket, listen at ``host`` and return the port."""
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
        """Serve a peer that calls `dial`. Return the rate of the received data in bytes per second."""
        with closing(self._accept()) as peer:
            echo(peer)
        with closing(self._accept()) as peer:
            rate = receive(peer, seconds)
        with closing(self._accept()) as peer:
            send(peer)
        return rate

    def _accept(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("this rank is not listening")
        peer, _ = self._socket.accept()
        peer.settimeout(SECONDS)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peer


@functools.cache
def listener() -> Listener:
    """Return the `Listener` of this process."""
    return Listener()


def open_listener(host: str) -> dict[str, Any]:
    """Listen at ``host``, the address at which peers reach this rank. Return ``port`` or ``error``."""
    try:
        return {"port": listener().open(host)}
    except OSError as exc:
        return {"error": str(exc)}


def serve(seconds: float) -> dict[str, Any]:
    """Serve one peer and close the listener. Return the received ``bytes_per_second``, or ``error``."""
    try:
        return {"bytes_per_second": listener().serve(seconds)}
    except OSError as exc:
        return {"error": str(exc)}
    finally:
        listener().close()


def dial(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Measure the connection to a listening rank.

    Return the median round-trip ``latency`` in seconds and the received ``bytes_per_second``, or ``error``.
    """
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
    """Echo small messages until the peer closes the connection."""
    while message := _read(peer, PING_BYTES):
        peer.sendall(message)


def send(peer: socket.socket) -> None:
    """Send data until the peer closes the connection.

    Only the receiver can measure the rate, because data that was sent may still be in buffers.
    """
    block = bytes(BLOCK_BYTES)
    deadline = time.monotonic() + SECONDS
    try:
        while time.monotonic() < deadline:
            peer.sendall(block)
    except (BrokenPipeError, ConnectionResetError):
        return
    raise TimeoutError("the peer did not end the measurement in time")


def receive(peer: socket.socket, seconds: float) -> float:
    """Receive data for ``seconds`` after the first bytes. Return the rate in bytes per second."""
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
    """Return exactly ``count`` bytes, or no bytes if the peer has closed the connection."""
    message = b""
    while len(message) < count:
        received = peer.recv(count - len(message))
        if not received:
            return b""
        message += received
    return message
