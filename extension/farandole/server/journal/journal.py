"""The journal of one rank in one run.

The journal is stored by the worker's server, so that no message is lost if the driver, the hub or the proxy is killed.
"""

from __future__ import annotations

import asyncio
import bisect
import json
import os
import time
import uuid
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

from farandole.protocol import RECORD_NUMBER, RECORD_RUN, Part
from farandole.sizes import size_text

LIMIT_BYTES = 200_000_000
"""Size in bytes above which a journal rejects output. Reports and the messages that end the run are always accepted."""
READ_BYTES = 1_000_000
OUTPUT = frozenset({"stream", "display_data", "execute_result", "update_display_data", "clear_output"})


class Owner(Protocol):
    """The connection that started a run on a kernel. The kernel sends replies for this run only to this connection."""

    @property
    def has_driver(self) -> bool:
        """Whether a driver is connected."""

    def end_stopped_run(self) -> None:
        """End the journal, because the kernel was stopped."""


class Journal:
    """All messages that one rank sent during one run, stored as a file of websocket frames numbered from 1.

    A journal may be used only in the server's event loop. Frames that could not be written, e.g. because the disk is
    full, stay in memory and are written before the next frame.
    """

    def __init__(self, path: Path, *, run: str, kernel_id: str, rank: int, about: dict[str, Any], owner: Owner) -> None:
        self.run = run
        self.kernel_id = kernel_id
        self.rank = rank
        self.about = about
        self.owner = owner
        self.requests: dict[str, str] = {}
        """Maps the message id of each request to the part of the run that the request executes (a value of `Part`)."""
        self.ended: float | None = None
        self.limit = LIMIT_BYTES
        self.has_room: Callable[[], bool] = lambda: True
        self.readers = 0
        self.completed = False
        """Whether the rank has finished the run. False while the rank is executing the run, and after its death."""
        self.end_was_read = False
        """Whether a driver has confirmed that it has received all messages of the run, including the last one."""
        self.persisted = False
        """Whether the run's folder contains a complete copy of the journal, or a record that the run has ended."""
        self.persisting = False
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._offsets = array("Q")
        """The byte offset in the file at which each frame ends."""
        self._unwritten: list[bytes] = []
        self._size = 0
        self._full = False
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        """The number of messages in the journal."""
        return len(self._offsets) + len(self._unwritten)

    @property
    def size(self) -> int:
        """The size of the journal in bytes."""
        return self._size

    @property
    def has_driver(self) -> bool:
        """Whether a driver is currently receiving the messages."""
        return self.readers > 0 or self.owner.has_driver

    @property
    def busy(self) -> bool:
        """Whether the journal is being written, read or copied, so that it must not be deleted."""
        return not self.ended or self.readers > 0 or self.persisting

    def describe(self) -> dict[str, Any]:
        """Return a description of the journal; see `farandole.driver.workers.journal.JournalInfo`."""
        return {
            "run": self.run,
            "kernel": self.kernel_id,
            "rank": self.rank,
            "requests": self.requests,
            "ended": self.ended,
            "led": self.has_driver,
            "count": self.count,
            "about": self.about,
        }

    def add(self, channel: str, kind: str, parts: list[bytes]) -> bytes:
        """Append a message and return its frame. Output above the limit is not recorded and gets no number."""
        if kind in OUTPUT and (self._size >= self.limit or not self.has_room()):
            self._append_full_notice(channel)
            return bytes(serialize_msg_to_ws_v1(parts, channel))
        return self._append(channel, parts)

    def end(self) -> None:
        """Mark the journal as ended and wake its readers."""
        if not self.ended:
            self.ended = time.time()
        self.wake()

    async def wait(self, after: int) -> None:
        """Wait until there are more than ``after`` messages, the journal has ended, or `wake` is called."""
        if self.count > after or self.ended:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        try:
            await future
        finally:
            if future in self._waiters:  # true only if the wait was cancelled
                self._waiters.remove(future)

    def wake(self) -> None:
        """Make all pending calls of `wait` return."""
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def read(self, after: int) -> tuple[bytes, int]:
        """Return about 1 MB of the messages after number ``after``, and the number of the last returned message.

        Each frame is preceded by its length as 4 bytes, most significant byte first.
        """
        self._write()
        if after >= len(self._offsets):
            return b"".join(self._unwritten[after - len(self._offsets) :]), self.count
        start = self._offsets[after - 1] if after else 0
        last = max(after + 1, bisect.bisect_right(self._offsets, start + READ_BYTES))
        return os.pread(self._file, self._offsets[last - 1] - start, start), last

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count a driver as a reader of the journal during this context."""
        self.readers += 1
        try:
            yield
        finally:
            self.readers -= 1

    def remove(self) -> None:
        """End the journal and delete its file."""
        self.end()
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _append(self, channel: str, parts: list[bytes]) -> bytes:
        frame: bytes = serialize_msg_to_ws_v1(self._numbered(parts), channel)
        self._size += len(frame) + 4
        self._unwritten.append(len(frame).to_bytes(4, "big") + frame)
        self._write()
        if self._waiters:
            self.wake()
        return frame

    def _write(self) -> None:
        """Write all unwritten frames. If a frame cannot be written completely, the next call writes it again."""
        while self._unwritten:
            start = self._offsets[-1] if self._offsets else 0
            entry = self._unwritten[0]
            try:
                written = os.pwrite(self._file, entry, start)
            except OSError:
                return
            if written < len(entry):
                return
            self._offsets.append(start + len(entry))
            del self._unwritten[0]

    def _append_full_notice(self, channel: str) -> None:
        if self._full:
            return
        self._full = True
        text = (
            f"... the worker has recorded {size_text(self._size)} of rank {self.rank}'s output in this run and "
            "records no more of it. Reports are recorded; a driver that stays connected receives all output.\n"
        )
        request = next((message for message, role in self.requests.items() if role == Part.CELL), "")
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "stream"}
        content = {"name": "stderr", "text": text}
        self._append(channel, [json.dumps(part).encode() for part in (header, {"msg_id": request}, {}, content)])

    def _numbered(self, parts: list[bytes]) -> list[bytes]:
        known = {} if parts[2] == b"{}" else json.loads(parts[2])
        metadata = {**known, RECORD_NUMBER: self.count + 1, RECORD_RUN: self.run}
        return [*parts[:2], json.dumps(metadata).encode(), *parts[3:]]
