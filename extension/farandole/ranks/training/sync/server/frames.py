"""Messages between ranks and the parameter server: a number and a tensor of bytes, over a TCP connection."""

from __future__ import annotations

import hmac
import socket
import struct

import torch

from farandole.ranks.world.sockets import KEEPALIVE_OPTIONS

HEADER = struct.Struct("!dQ")
KEY_BYTES = 32
LONGEST = 2**36
"""The largest payload in bytes. A larger number in a header is not from a rank of this world."""


def configure(peer: socket.socket) -> None:
    """Send small messages at once, and notice a peer whose machine has vanished."""
    for level, option, value in (*KEEPALIVE_OPTIONS, (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)):
        peer.setsockopt(level, option, value)


def send(peer: socket.socket, number: float, payload: torch.Tensor) -> None:
    """Send a number and a payload, which is a tensor on the CPU of any shape and type."""
    data = payload.contiguous().flatten().view(torch.uint8).numpy()
    peer.sendall(HEADER.pack(number, data.nbytes))
    peer.sendall(data.data)


def receive(peer: socket.socket, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    """Return the next number and payload, of shape (n,). Raise ConnectionError if the peer has left."""
    number, size = HEADER.unpack(_exactly(peer, HEADER.size))
    if size > LONGEST:
        raise ConnectionError(f"a message of {size} bytes is too large")
    data = _exactly(peer, size)
    return number, torch.frombuffer(data, dtype=dtype) if size else torch.empty(0, dtype=dtype)


def send_key(peer: socket.socket, key: bytes, rank: int) -> None:
    """Tell the server which rank this is. All ranks of a world have the same ``key``."""
    peer.sendall(key + struct.pack("!I", rank))


def receive_key(peer: socket.socket, key: bytes) -> int:
    """Return the number of the rank that has connected. Raise ConnectionError if it does not know the ``key``."""
    found = bytes(_exactly(peer, KEY_BYTES))
    if not hmac.compare_digest(found, key):
        raise ConnectionError("a process that is not a rank of this world has connected")
    return int(struct.unpack("!I", _exactly(peer, 4))[0])


def _exactly(peer: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        received = peer.recv_into(view[filled:])
        if not received:
            raise ConnectionError("the peer has closed the connection")
        filled += received
    return data
