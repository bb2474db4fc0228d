"""The records of one worker: which there are, when they end, and what becomes of them when no driver has read them."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from farandole.protocol import Part
from farandole.server.journal.cleanup import remove_copies
from farandole.server.journal.journal import Journal, Owner
from farandole.server.journal.persist import leave
from farandole.server.journal.tempdirs import own_folder

TOTAL_BYTES = 1_000_000_000
"""From this size on all records together take no more output; those of runs that have ended make room first."""
KEPT_RUNS = 5
"""How many runs that have ended stay on record."""
UNREAD_SECONDS = 86_400.0
"""How long a run's end that nobody has read, and that could not be left on a volume, keeps its worker in use."""
LEAVE_SECONDS = 4.0
"""How long a server that stops may take to leave its records once its kernels are gone, which may take five seconds;
whoever stops it waits for ten at the least."""


class Journals:
    """The records of one worker: of the runs that go on, and of the last few that have ended."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._records: list[Journal] = []
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

    @property
    def going(self) -> list[str]:
        """The ids of the runs that go on here."""
        return sorted({record.run for record in self._records if not record.ended})

    def note(self, kernel_id: str, message_id: str, mark: dict[str, Any], owner: Owner) -> None:
        """Note a request that belongs to a run; its first one opens the record. ``mark`` is what the driver sent."""
        if mark["part"] == Part.BEGIN:
            self._open(kernel_id, mark, owner)
        record = self.get(mark["run"], kernel_id)
        if record is not None and not record.ended:
            record.requests[message_id] = mark["part"]

    def get(self, run: str, kernel_id: str) -> Journal | None:
        """Return the record of a rank's part in a run."""
        return next((one for one in reversed(self._records) if (one.run, one.kernel_id) == (run, kernel_id)), None)

    def of(self, kernel_id: str, kind: str, parts: list[bytes]) -> Journal | None:
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

    def open_of(self, kernel_id: str) -> Journal | None:
        """Return the record that a kernel still adds to."""
        return next((one for one in self._records if one.kernel_id == kernel_id and not one.ended), None)

    def listing(self) -> list[dict[str, Any]]:
        """Return what there is, in the order in which it began; see `farandole.driver.workers.journal.JournalInfo`."""
        return [record.describe() for record in self._records]

    def end(self, record: Journal, *, done: bool) -> None:
        """Nothing more will come; where no driver reads along, it is left beside the run's files.

        ``done``: the rank has done its part, and has not died in it.
        """
        record.end()
        record.done = done
        # A rank that died here may have left the newest copy, and the one that took its place have failed to join.
        if all(one.done for one in self._records if one.run == record.run):
            self._remove_copies([record.run])
        self._leave(record)

    def abandon(self, owner: Owner) -> None:
        """Leave what a driver that goes may have heard to its end, but not have written down.

        Not what it heard of a rank that died: an elastic run goes on, and its driver has only let go of that rank.
        """
        for record in self._records:
            if record.owner is owner and record.done:
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

    def _leave(self, record: Journal) -> None:
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
        record = Journal(
            path, run=mark["run"], kernel_id=kernel_id, rank=mark["rank"], about=mark["about"], owner=owner
        )
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
            self._folder = own_folder("record")
        return self._folder


async def _left(record: Journal) -> None:
    try:
        record.left = await leave(record)
    finally:
        record.leaving = False
