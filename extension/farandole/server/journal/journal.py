"""What the ranks of this worker said in a run, kept by the worker's server: it outlives the driver, hub and proxy."""

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

LIMIT_BYTES = 200_000_000
"""From this size on a record takes no more output, which is what grows; reports and the end are always kept."""
READ_BYTES = 1_000_000
OUTPUT = frozenset({"stream", "display_data", "execute_result", "update_display_data", "clear_output"})


class Owner(Protocol):
    """The connection that asked for what a record holds: the kernel's answers reach nobody else."""

    @property
    def led(self) -> bool:
        """Whether a driver still reads it."""

    def tell_stopped(self) -> None:
        """End the record: the kernel was stopped."""


class Journal:
    """All that one rank said in one run: websocket frames in their order, numbered from 1, in a file.

    Belongs to the server's event loop. A frame that the disk does not take waits in memory for the next one.
    """

    def __init__(self, path: Path, *, run: str, kernel_id: str, rank: int, about: dict[str, Any], owner: Owner) -> None:
        self.run = run
        self.kernel_id = kernel_id
        self.rank = rank
        self.about = about
        self.owner = owner
        self.requests: dict[str, str] = {}
        """Message id of each request of the run -> which part of the run it is."""
        self.ended: float | None = None
        self.limit = LIMIT_BYTES
        self.has_room: Callable[[], bool] = lambda: True
        self.followers = 0
        self.done = False
        """Whether the rank has done all of its part; False while it does, and where it died in it."""
        self.told = False
        """Whether a driver has read the end."""
        self.left = False
        """Whether all of it lies beside the run's files."""
        self.leaving = False
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._ends = array("Q")
        self._unwritten: list[bytes] = []
        self._size = 0
        self._full = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def count(self) -> int:
        """How many messages there are."""
        return len(self._ends) + len(self._unwritten)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return self._size

    @property
    def led(self) -> bool:
        """Whether a driver reads along."""
        return self.followers > 0 or self.owner.led

    @property
    def busy(self) -> bool:
        """Whether it is written, read or copied."""
        return not self.ended or self.followers > 0 or self.leaving

    def describe(self) -> dict[str, Any]:
        """Return what it is; see `farandole.driver.workers.journal.JournalInfo`."""
        return {
            "run": self.run,
            "kernel": self.kernel_id,
            "rank": self.rank,
            "requests": self.requests,
            "ended": self.ended,
            "led": self.led,
            "count": self.count,
            "about": self.about,
        }

    def take(self, channel: str, kind: str, parts: list[bytes]) -> bytes:
        """Record a message; return its frame, which carries its number where it was recorded."""
        if kind in OUTPUT and (self._size >= self.limit or not self.has_room()):
            self._say_full(channel)
            frame: bytes = serialize_msg_to_ws_v1(parts, channel)
            return frame
        return self._keep(channel, parts)

    def end(self) -> None:
        """Nothing more will come; whoever reads along has read all."""
        if not self.ended:
            self.ended, self.told = time.time(), self.led
        self.wake()

    async def wait(self, after: int) -> None:
        """Return when there are more than ``after`` messages, when the record has ended, or on `wake`."""
        if self.count > after or self.ended:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:  # given up
                self._waiting.remove(future)

    def wake(self) -> None:
        """Have all who wait look again."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def read(self, after: int) -> tuple[bytes, int]:
        """Return the messages after the first ``after``, about 1 MB at most, and how many come before the next ones.

        Each frame has its length before it, as 4 bytes, most significant first.
        """
        self._write()
        if after >= len(self._ends):
            return b"".join(self._unwritten[after - len(self._ends) :]), self.count
        start = self._ends[after - 1] if after else 0
        last = max(after + 1, bisect.bisect_right(self._ends, start + READ_BYTES))
        return os.pread(self._file, self._ends[last - 1] - start, start), last

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count whoever reads along as a driver."""
        self.followers += 1
        try:
            yield
        finally:
            self.followers -= 1

    def remove(self) -> None:
        """Forget all of it."""
        self.end()
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _keep(self, channel: str, parts: list[bytes]) -> bytes:
        frame: bytes = serialize_msg_to_ws_v1(self._numbered(parts), channel)
        self._size += len(frame) + 4
        self._unwritten.append(len(frame).to_bytes(4, "big") + frame)
        self._write()
        if self._waiting:
            self.wake()
        return frame

    def _write(self) -> None:
        """Write what waits; a frame that the disk takes in part, or not at all, is tried again with the next one."""
        while self._unwritten:
            start = self._ends[-1] if self._ends else 0
            entry = self._unwritten[0]
            try:
                written = os.pwrite(self._file, entry, start)
            except OSError:
                return
            if written < len(entry):
                return
            self._ends.append(start + len(entry))
            del self._unwritten[0]

    def _say_full(self, channel: str) -> None:
        if self._full:
            return
        self._full = True
        text = (
            f"... the worker has recorded {self._size / 1e6:.3g} MB of rank {self.rank}'s output in this run and keeps "
            "no more of it. Reports are kept; a driver that stays connected still gets all.\n"
        )
        request = next((message for message, part in self.requests.items() if part == Part.CELL), "")
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "stream"}
        content = {"name": "stderr", "text": text}
        self._keep(channel, [json.dumps(part).encode() for part in (header, {"msg_id": request}, {}, content)])

    def _numbered(self, parts: list[bytes]) -> list[bytes]:
        known = {} if parts[2] == b"{}" else json.loads(parts[2])
        metadata = {**known, RECORD_NUMBER: self.count + 1, RECORD_RUN: self.run}
        return [*parts[:2], json.dumps(metadata).encode(), *parts[3:]]
