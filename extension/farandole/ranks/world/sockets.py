"""Tracks the sockets that a library opens, so that they can be shut down.

Shutting down a socket unblocks the threads on both ends that are waiting for their peer.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")
KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""After 5 s without data, keepalive probes the peer's machine every 2 s, but only if no sent data is pending.

TCP_USER_TIMEOUT would also cover pending data, but it breaks connections to processes that are only slow to read.
`is_unanswered` covers pending data instead.
"""
UNANSWERED_MS = 10_000
"""Maximum time in milliseconds without an acknowledgement.

The peer's operating system sends acknowledgements even if the peer's process is stopped.
"""
RETRANSMITS = 3
"""Minimum number of retransmits before a connection counts as unanswered.

With fewer retransmits, the connection may have been idle until a moment ago.
"""
INFO = struct.Struct("=2xB21xI28xI")
"""Fields of Linux's ``tcp_info``: retransmits in a row, unacknowledged segments, milliseconds since the last answer."""
UNANSWERED_CHECK_SECONDS = 1.0


class OpenedSockets:
    """The TCP connections that were opened during `track`. There are none on systems without /proc."""

    def __init__(self) -> None:
        self._inodes: dict[int, int] = {}
        self._baseline: Baseline | None = None
        self._released = threading.Event()

    @contextmanager
    def track(self) -> Iterator[None]:
        """Record the connections that are opened inside the ``with`` block, and forget earlier connections.

        - Connections accepted on a port that was already open are ignored, because they may belong to Jupyter.
        - After the block, a thread shuts down connections to machines that no longer answer. Connections to processes
          that are only slow stay open.
        """
        self._released.set()
        self._inodes, self._released = {}, threading.Event()
        with self.track_more():
            yield

    @contextmanager
    def track_more(self) -> Iterator[None]:
        """Record the connections that are opened inside the ``with`` block beside earlier connections; see `track`."""
        self._baseline = baseline = Baseline()
        try:
            yield
        finally:
            # Runs even if the library fails, because peers may be waiting on connections that it leaves open.
            opened = baseline.opened_since()
            self._inodes, self._baseline = self._inodes | opened, None
        _enable_keepalive(opened)
        threading.Thread(
            target=_cut_unanswered, args=(opened, self._released), name="farandole-links", daemon=True
        ).start()

    def cut(self) -> None:
        """Shut down the tracked connections that are still open. The library that opened them closes them.

        During `track`, another thread may call this method to shut down the connections that were opened so far.
        """
        if (baseline := self._baseline) is not None:
            self._inodes |= baseline.opened_since()
        self._released.set()
        for connection in _still_open(self._inodes):
            _shut_down(connection)
        self._inodes = {}


class Baseline:
    """Snapshot of the sockets and listening ports that this process has open."""

    def __init__(self) -> None:
        self._known, self._ports = set(_inodes().items()), _listening_ports()

    def opened_since(self) -> dict[int, int]:
        """Return the connections that were opened after the snapshot, as inodes by file descriptor."""
        opened = {fd: inode for fd, inode in _inodes().items() if (fd, inode) not in self._known}
        return {fd: inode for fd, inode in opened.items() if _is_connection(fd, self._ports)}


def _enable_keepalive(inodes: dict[int, int]) -> None:
    """Make the operating system detect that a peer's machine is gone. Otherwise, torch waits for 30 minutes."""
    for connection in _still_open(inodes):
        with suppress(OSError):
            for level, option, value in KEEPALIVE_OPTIONS:
                connection.setsockopt(level, option, value)


def _cut_unanswered(inodes: dict[int, int], released: threading.Event) -> None:
    """Shut down connections to machines that no longer answer, until ``released`` is set or no connection is left."""
    left = bool(inodes)
    while left and not released.wait(UNANSWERED_CHECK_SECONDS):
        left = False
        for connection in _still_open(inodes):
            left = True
            if is_unanswered(connection):
                _shut_down(connection)


def is_unanswered(connection: socket.socket) -> bool:
    """Return whether sent data has not been acknowledged within the time limit.

    If the peer's process does not read, the peer's operating system still answers that the receive buffer is full. The
    connection then does not count as unanswered.
    """
    with suppress(OSError):
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO.size)
        retransmits, unacknowledged, silent = INFO.unpack(info)
        return bool(unacknowledged > 0 and retransmits >= RETRANSMITS and silent >= UNANSWERED_MS)
    return False


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _still_open(inodes: dict[int, int]) -> Iterator[socket.socket]:
    """Yield a duplicate of each connection that is still open. A duplicate is closed when the next one is requested."""
    for fd, inode in inodes.items():
        # The descriptor may have been closed and reused for another file, which has a different inode.
        with suppress(OSError):
            if os.fstat(fd).st_ino == inode:
                with _duplicate(fd) as connection:
                    yield connection


def _inodes() -> dict[int, int]:
    """Return the inodes of all open sockets, by file descriptor."""
    found = {}
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.exists() else ():
        with suppress(OSError):  # the descriptor that was used to list the folder is already closed
            if entry.is_socket():
                found[int(entry.name)] = entry.stat().st_ino
    return found


def _listening_ports() -> set[int]:
    ports = set()
    for fd in _inodes():
        with suppress(OSError), _duplicate(fd) as listener:
            if _is_tcp(listener) and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(listener.getsockname()[1])
    return ports


def _is_connection(fd: int, listening: set[int]) -> bool:
    try:
        with _duplicate(fd) as connection:
            connection.getpeername()
            return _is_tcp(connection) and connection.getsockname()[1] not in listening
    except OSError:
        return False


def _is_tcp(one: socket.socket) -> bool:
    kind = one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
    return one.family in (socket.AF_INET, socket.AF_INET6) and kind == socket.SOCK_STREAM


def _duplicate(fd: int) -> socket.socket:
    """Return a socket object for a duplicate of the file descriptor.

    SOCK_NONBLOCK makes Python leave the blocking mode unchanged. Without this flag, after a call to
    ``socket.setdefaulttimeout``, Python would make the socket non-blocking for its owner as well.
    """
    return socket.socket(-1, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, -1, os.dup(fd))
