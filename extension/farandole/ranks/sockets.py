"""Sockets that a library opened: cutting them lets go whoever waits for a peer, on both ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")


class OpenedSockets:
    """The TCP connections that were opened while `watch` was on; where there is no /proc, none are known."""

    def __init__(self) -> None:
        self._inodes: dict[int, int] = {}

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note the connections that are opened inside the ``with``, in place of those noted before.

        Accepted ones on a port that was open before are somebody else's: the kernel's own, for example.
        """
        known, theirs = set(_inodes().items()), _listening_ports()
        yield
        opened = {fd: inode for fd, inode in _inodes().items() if (fd, inode) not in known}
        self._inodes = {fd: inode for fd, inode in opened.items() if _is_connection(fd, theirs)}

    def cut(self) -> None:
        """Shut the noted connections down, those that are still open; their owner closes them."""
        for fd, inode in self._inodes.items():
            # A descriptor may have been closed and given to another file since; its inode tells.
            with suppress(OSError):
                if os.fstat(fd).st_ino == inode:
                    with socket.socket(fileno=os.dup(fd)) as connection:
                        connection.shutdown(socket.SHUT_RDWR)
        self._inodes = {}


def _inodes() -> dict[int, int]:
    """Return the inode of every open socket, by its descriptor."""
    found = {}
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.exists() else ():
        with suppress(OSError):  # the descriptor of this very listing is gone by now
            if entry.is_socket():
                found[int(entry.name)] = entry.stat().st_ino
    return found


def _listening_ports() -> set[int]:
    ports = set()
    for fd in _inodes():
        with suppress(OSError), socket.socket(fileno=os.dup(fd)) as listener:
            if _is_tcp(listener) and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(listener.getsockname()[1])
    return ports


def _is_connection(fd: int, theirs: set[int]) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            connection.getpeername()
            return _is_tcp(connection) and connection.getsockname()[1] not in theirs
    except OSError:
        return False


def _is_tcp(one: socket.socket) -> bool:
    return one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
