"""What the ranks of this worker said in a run, kept by the worker's server: it outlives the driver, hub and proxy."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import os
import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

from farandole.protocol import RECORD_NUMBER, RECORD_RUN, Part
from farandole.server.handover import leave
from farandole.server.leftovers import record_folder, remove_copies

LIMIT_BYTES = 200_000_000
"""From this size on a record takes no more output, which is what grows; reports and the end are always kept."""
TOTAL_BYTES = 1_000_000_000
"""The same for all records of a worker together; those of runs that have ended make room first."""
READ_BYTES = 1_000_000
KEPT_RUNS = 5
"""How many runs that have ended stay on record."""
UNREAD_SECONDS = 86_400.0
"""How long a run's end that nobody has read, and that could not be left on a volume, keeps its worker in use."""
LEAVE_SECONDS = 8.0
"""How long a server that stops may take to leave its records; whoever stops it waits for ten seconds at the least."""
OUTPUT = frozenset({"stream", "display_data", "execute_result", "update_display_data", "clear_output"})


class Owner(Protocol):
    """The connection that asked for what a record holds: the kernel's answers reach nobody else."""

    @property
    def led(self) -> bool:
        """Whether a driver still reads it."""

    def tell_stopped(self) -> None:
        """End the record: the kernel was stopped."""


class Record:
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
        """Return what it is; see `farandole.driver.records.RecordInfo`."""
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
        await future

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


class Records:
    """The records of one worker: of the runs that go on, and of the last few that have ended."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._records: list[Record] = []
        self._numbers = itertools.count()
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def unread(self) -> bool:
        """Whether a run's end is known here alone, and waits for a driver."""
        return any(
            record.ended
            and not (record.told or record.left or record.led)
            and time.time() - record.ended < UNREAD_SECONDS
            for record in self._records
        )

    def note(self, kernel_id: str, message_id: str, mark: dict[str, Any], owner: Owner) -> None:
        """Note a request that belongs to a run; its first one opens the record. ``mark`` is what the driver sent."""
        if mark["part"] == Part.BEGIN:
            self._open(kernel_id, mark, owner)
        record = self.get(mark["run"], kernel_id)
        if record is not None and not record.ended:
            record.requests[message_id] = mark["part"]

    def get(self, run: str, kernel_id: str) -> Record | None:
        """Return the record of a rank's part in a run."""
        return next((one for one in reversed(self._records) if (one.run, one.kernel_id) == (run, kernel_id)), None)

    def of(self, kernel_id: str, kind: str, parts: list[bytes]) -> Record | None:
        """Return the record that a message belongs to, be it over by now.

        A report says itself which run it is of: it may come in the name of any request.
        """
        mine = [record for record in reversed(self._records) if record.kernel_id == kernel_id]
        if not mine:
            return None
        if kind == "comm_msg":
            return next((record for record in mine if record.run.encode() in parts[3]), None)
        request = json.loads(parts[1]).get("msg_id", "")
        return next((record for record in mine if request in record.requests), None)

    def open_of(self, kernel_id: str) -> Record | None:
        """Return the record that a kernel still adds to."""
        return next((one for one in self._records if one.kernel_id == kernel_id and not one.ended), None)

    def listing(self) -> list[dict[str, Any]]:
        """Return what there is, in the order in which it began; see `farandole.driver.records.RecordInfo`."""
        return [record.describe() for record in self._records]

    def end(self, record: Record, *, done: bool) -> None:
        """Nothing more will come; where no driver reads along, it is left beside the run's files.

        ``done``: the rank has done its part, and has not died in it.
        """
        record.end()
        if done:
            self._remove_copies([record.run])
        self._leave(record)

    def abandon(self, owner: Owner) -> None:
        """Leave what a driver that goes may have heard to its end, but not have written down."""
        for record in self._records:
            if record.owner is owner and Part.END in record.requests.values():
                self._leave(record)

    async def leave_all(self) -> None:
        """Leave all that has ended and that no driver has written down: this server stops."""
        self._remove_copies(self._runs)
        for record in self._records:
            self._leave(record)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=LEAVE_SECONDS)

    def _remove_copies(self, runs: Iterable[str]) -> None:
        going = {record.run for record in self._records if not record.ended}
        remove_copies(run for run in runs if run not in going)

    def _leave(self, record: Record) -> None:
        if record.ended and not (record.left or record.leaving or record.led):
            record.leaving = True
            task = asyncio.get_running_loop().create_task(_left(record), name=f"leave {record.run}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    def _open(self, kernel_id: str, mark: dict[str, Any], owner: Owner) -> None:
        if (last := self.open_of(kernel_id)) is not None:
            last.end()
        # A run whose ranks were all killed, and which was given up, could not remove them.
        self._remove_copies([run for run in self._runs if run != mark["run"]])
        self._drop_old()
        path = self._place() / f"{next(self._numbers)}.frames"
        record = Record(path, run=mark["run"], kernel_id=kernel_id, rank=mark["rank"], about=mark["about"], owner=owner)
        record.has_room = self._has_room
        self._records.append(record)

    def _has_room(self) -> bool:
        """Return whether there is room for more output, after having made some where that can be."""
        for run in self._runs:
            if sum(record.size for record in self._records) < TOTAL_BYTES:
                return True
            self._forget(run)
        return sum(record.size for record in self._records) < TOTAL_BYTES

    @property
    def _runs(self) -> list[str]:
        return list(dict.fromkeys(record.run for record in self._records))

    def _drop_old(self) -> None:
        for run in self._runs[: -KEPT_RUNS or None]:
            self._forget(run)

    def _forget(self, run: str) -> None:
        records = [record for record in self._records if record.run == run]
        if not any(record.busy for record in records):
            for record in records:
                self._records.remove(record)
                record.remove()

    def _place(self) -> Path:
        # A folder of this machine and of this server's life: the volume with the user's home may be slow or far.
        if self._folder is None:
            self._folder = record_folder()
        return self._folder


async def _left(record: Record) -> None:
    try:
        record.left = await leave(record)
    finally:
        record.leaving = False
