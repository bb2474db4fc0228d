"""Sockets that a library opened: cutting them lets go whoever waits for a peer, on both ends."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
LIMITS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""After 5 s of silence the peer's machine is asked each 2 s, but only by who has nothing on its way to it.

TCP_USER_TIMEOUT is for the others, and no good here: it also breaks connections to processes that are only slow.
"""
UNANSWERED_MS = 10_000
"""How long what was sent may go without an answer of the peer's machine, which answers for a stopped process too."""
RETRANSMITS = 3
"""So often it must have been sent in vain meanwhile: before, there may have been nothing to answer."""
INFO = struct.Struct("=2xB21xI28xI")
"""Of Linux' tcp_info: retransmits in a row, segments on their way, milliseconds since the last answer."""
LOOK_SECONDS = 1.0


class OpenedSockets:
    """The TCP connections that were opened while `watch` was on; where there is no /proc, none are known."""

    def __init__(self) -> None:
        self._inodes: dict[int, int] = {}
        self._before: Before | None = None
        self._over = threading.Event()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note the connections that are opened inside the ``with``, in place of those noted before.

        Accepted ones on a port that was open before are somebody else's: the kernel's own, for example. A machine that
        can no longer be reached breaks those that stay; a process there that is only slow does not.
        """
        self._over.set()
        self._before = before = Before()
        try:
            yield
        finally:
            # Also where the library gave up: peers may wait for what it leaves open.
            self._inodes = before.opened_since()
            self._before = None
        self._limit()
        self._over = threading.Event()
        threading.Thread(target=_guard, args=(self._inodes, self._over), name="farandole-links", daemon=True).start()

    def cut(self) -> None:
        """Shut the noted connections down, those that are still open; their owner closes them.

        In another thread while `watch` is on: those that were opened so far.
        """
        if (before := self._before) is not None:
            self._inodes = before.opened_since()
        self._over.set()
        for connection in _still_open(self._inodes):
            _shut_down(connection)
        self._inodes = {}

    def _limit(self) -> None:
        """Have the system find out that a peer's machine is gone: the libraries would wait for it, torch 30 minutes."""
        for connection in _still_open(self._inodes):
            with suppress(OSError):
                for level, option, value in LIMITS:
                    connection.setsockopt(level, option, value)


class Before:
    """What this process had open at some time: its sockets, and the ports where it listened."""

    def __init__(self) -> None:
        self._known, self._ports = set(_inodes().items()), _listening_ports()

    def opened_since(self) -> dict[int, int]:
        """Return the connections that have been opened since, inodes by descriptor."""
        opened = {fd: inode for fd, inode in _inodes().items() if (fd, inode) not in self._known}
        return {fd: inode for fd, inode in opened.items() if _is_connection(fd, self._ports)}


def _guard(inodes: dict[int, int], over: threading.Event) -> None:
    """Shut down connections whose peer's machine answers no more, until it is over or none is left."""
    left = bool(inodes)
    while left and not over.wait(LOOK_SECONDS):
        left = False
        for connection in _still_open(inodes):
            left = True
            if is_unanswered(connection):
                _shut_down(connection)


def is_unanswered(connection: socket.socket) -> bool:
    """Say whether what was sent has gone for too long without an answer.

    A peer that does not read has nothing on its way to it: its machine goes on to say that it takes no more.
    """
    with suppress(OSError):
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
        retransmits, on_their_way, silent = INFO.unpack(info)
        return bool(on_their_way > 0 and retransmits >= RETRANSMITS and silent >= UNANSWERED_MS)
    return False


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _still_open(inodes: dict[int, int]) -> Iterator[socket.socket]:
    """Yield those that are, each open a second time until the next one."""
    for fd, inode in inodes.items():
        # A descriptor may have been closed and given to another file since; its inode tells.
        with suppress(OSError):
            if os.fstat(fd).st_ino == inode:
                with _again(fd) as connection:
                    yield connection


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
        with suppress(OSError), _again(fd) as listener:
            if _is_tcp(listener) and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(listener.getsockname()[1])
    return ports


def _is_connection(fd: int, theirs: set[int]) -> bool:
    try:
        with _again(fd) as connection:
            connection.getpeername()
            return _is_tcp(connection) and connection.getsockname()[1] not in theirs
    except OSError:
        return False


def _is_tcp(one: socket.socket) -> bool:
    kind = one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
    return one.family in (socket.AF_INET, socket.AF_INET6) and kind == socket.SOCK_STREAM


def _again(fd: int) -> socket.socket:
    """Return a socket that is open a second time.

    Called a non-blocking one it stays what it is. Otherwise Python makes it one where ``socket.setdefaulttimeout`` was
    called, for its owner as well.
    """
    return socket.socket(-1, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, -1, os.dup(fd))
