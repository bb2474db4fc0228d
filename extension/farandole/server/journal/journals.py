"""Manages the journals of one worker, limits their size, and copies unread journals to the user's volume."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from farandole.protocol import RUN_MARK, Part, is_rank
from farandole.server.journal.cleanup import remove_copies
from farandole.server.journal.journal import Journal, Owner
from farandole.server.journal.persist import persist
from farandole.server.journal.tempdirs import make_tempdir

TOTAL_BYTES = 1_000_000_000
"""Maximum total size of all journals in bytes. Journals of ended runs are deleted before output is rejected."""
RUN_ID = re.compile(r"[^/\x00-\x1f]{1,200}")
KEPT_RUNS = 5
"""Number of earlier runs whose journals are kept when a new run begins."""
UNREAD_SECONDS = 86_400.0
"""How long a worker counts as used after the end of a run whose journal was neither read nor copied, in seconds."""
PERSIST_SECONDS = 4.0
"""Time limit in seconds for copying journals when the server stops.

The server first shuts down the kernels, which may take five seconds, and is killed after ten seconds at the earliest.
"""


class Journals:
    """The journals of the active runs and of the last few runs on one worker."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._journals: list[Journal] = []
        self._numbers = itertools.count()
        self._persisting: set[asyncio.Task[None]] = set()

    @property
    def has_unread_end(self) -> bool:
        """Whether this worker has the only record of a run's end, because the journal was neither read nor copied."""
        return any(
            journal.ended
            and not (journal.end_was_read or journal.persisted or journal.has_driver)
            and time.time() - journal.ended < UNREAD_SECONDS
            for journal in self._journals
        )

    @property
    def active_runs(self) -> list[str]:
        """The ids of the runs that have not ended on this worker."""
        return sorted({journal.run for journal in self._journals if not journal.ended})

    def note_request(self, kernel_id: str, message_id: str, mark: dict[str, Any], owner: Owner) -> None:
        """Record that a request belongs to a run. The first request of a run creates the journal.

        ``mark`` is the metadata that the driver adds to the request. Raises ValueError if the metadata is invalid,
        because a run id with unexpected characters would break the responses that describe all journals.
        """
        _check(mark)
        if mark["part"] == Part.BEGIN:
            self._create(kernel_id, mark, owner)
        journal = self.get(mark["run"], kernel_id)
        if journal is not None and not journal.ended:
            journal.requests[message_id] = mark["part"]

    def get(self, run: str, kernel_id: str) -> Journal | None:
        """Return the journal of a kernel in a run, or None if there is none."""
        return next((one for one in reversed(self._journals) if (one.run, one.kernel_id) == (run, kernel_id)), None)

    def of_message(self, kernel_id: str, kind: str, parts: list[bytes]) -> Journal | None:
        """Return the journal to which a message belongs, or None. The journal may have ended.

        Reports are found by the run id that they contain, because their parent header may refer to any request.
        """
        own = [journal for journal in reversed(self._journals) if journal.kernel_id == kernel_id]
        if not own:
            return None
        if kind == "comm_msg":
            return next((journal for journal in own if journal.run.encode() in parts[3]), None)
        request = json.loads(parts[1]).get("msg_id", "")
        return next((journal for journal in own if request in journal.requests), None)

    def active(self, kernel_id: str) -> Journal | None:
        """Return the journal of the kernel's active run, or None if the kernel has no active run."""
        return next((one for one in self._journals if one.kernel_id == kernel_id and not one.ended), None)

    def describe(self) -> list[dict[str, Any]]:
        """Return descriptions of all journals, oldest first; see `farandole.driver.workers.journal.JournalInfo`."""
        return [journal.describe() for journal in self._journals]

    def end(self, journal: Journal, *, completed: bool) -> None:
        """End a journal, and copy it to the run's folder if no driver is receiving the messages.

        ``completed`` is False if the rank has died.
        """
        journal.end()
        journal.completed = completed
        # Copies of commits from a rank that died here are kept, because a replacement rank may have to load them.
        if all(one.completed for one in self._journals if one.run == journal.run):
            self._remove_copies([journal.run])
        self._persist(journal)

    def abandon(self, owner: Owner) -> None:
        """Persist the completed journals of a connection whose driver has disconnected.

        The driver may have received the last messages without writing them to disk. Journals of ranks that died are not
        persisted, because the driver of an elastic run may have released such a rank to continue without it.
        """
        for journal in self._journals:
            if journal.owner is owner and journal.completed:
                self._persist(journal)

    async def persist_all(self) -> None:
        """Persist all ended journals that no driver is reading, and remove the copies of commits of ended runs.

        Call this method when the server is stopping.
        """
        self._remove_copies(self._runs)
        for journal in self._journals:
            self._persist(journal)
        if self._persisting:
            await asyncio.wait(self._persisting, timeout=PERSIST_SECONDS)

    def _remove_copies(self, runs: Iterable[str]) -> None:
        active = self.active_runs
        remove_copies(run for run in runs if run not in active)

    def _persist(self, journal: Journal) -> None:
        if journal.ended and not (journal.persisted or journal.persisting or journal.has_driver):
            journal.persisting = True
            task = asyncio.get_running_loop().create_task(_run_persist(journal), name=f"persist {journal.run}")
            # A strong reference is necessary, because the event loop keeps only weak references to tasks.
            self._persisting.add(task)
            task.add_done_callback(self._persisting.discard)

    def _create(self, kernel_id: str, mark: dict[str, Any], owner: Owner) -> None:
        if (last := self.active(kernel_id)) is not None:
            last.end()
        # If all ranks of an earlier run were killed, their copies of commits still exist.
        self._remove_copies([run for run in self._runs if run != mark["run"]])
        self._delete_old()
        path = self._tempdir() / f"{next(self._numbers)}.frames"
        journal = Journal(
            path, run=mark["run"], kernel_id=kernel_id, rank=mark["rank"], about=mark["about"], owner=owner
        )
        journal.has_room = self._has_room
        self._journals.append(journal)

    def _has_room(self) -> bool:
        """Return whether there is room for more output, after deleting journals of ended runs if necessary."""
        for run in self._runs:
            if sum(journal.size for journal in self._journals) < TOTAL_BYTES:
                return True
            self._delete(run)
        return sum(journal.size for journal in self._journals) < TOTAL_BYTES

    @property
    def _runs(self) -> list[str]:
        return list(dict.fromkeys(journal.run for journal in self._journals))

    def _delete_old(self) -> None:
        for run in self._runs[: -KEPT_RUNS or None]:
            self._delete(run)

    def _delete(self, run: str) -> None:
        journals = [journal for journal in self._journals if journal.run == run]
        if not any(journal.busy for journal in journals):
            for journal in journals:
                self._journals.remove(journal)
                journal.remove()

    def _tempdir(self) -> Path:
        # The folder is on this machine, because the volume with the user's home may be slow.
        if self._folder is None:
            self._folder = make_tempdir("record")
        return self._folder


def _check(mark: Any) -> None:
    begins = isinstance(mark, dict) and mark.get("part") == Part.BEGIN
    about = mark.get("about") if begins else {"folder": ""}
    valid = (
        isinstance(mark, dict)
        and isinstance(mark.get("run"), str)
        and RUN_ID.fullmatch(mark["run"])
        and mark.get("part") in list(Part)
        and isinstance(about, dict)
        and isinstance(about.get("folder", ""), str)
        and (not begins or is_rank(mark.get("rank")))
    )
    if not valid:
        raise ValueError(f"{RUN_MARK} in the metadata does not describe a request of a run")


async def _run_persist(journal: Journal) -> None:
    try:
        journal.persisted = await persist(journal)
    finally:
        journal.persisting = False
