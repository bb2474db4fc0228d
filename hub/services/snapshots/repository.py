"""The files of one user's repository, to which files are only added. Their number and size are limited.

The folder has the layout of restic's local repositories, so that `restic -r FOLDER` works for administrators.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = ("data", "index", "keys", "locks", "snapshots")
NAME = re.compile(r"[0-9a-f]{64}")
"""The name of a file, which is the SHA-256 of its content."""
BLOCK = 16 << 10
"""Each file counts as whole blocks. Many small files can then neither exceed the limit nor take all inodes of the disk,
of which ext4 has one for 16 KiB."""
LOCKS = "locks"
MOST_LOCKS = 100
LARGEST_LOCK = 16 << 10
"""Locks do not count, because a full repository must stay readable, and restic locks it to read it."""
LOCK_SECONDS = 30 * 60
"""The age at which a lock is no longer valid. restic replaces its lock every five minutes."""
MOST_UPLOADS = 32
MOST_DOWNLOADS = 32
LARGEST = 1 << 30


class NotStoredError(RuntimeError):
    """Base class of the reasons why a repository does not take a file. The message says what to do."""

    status: HTTPStatus


class FullError(NotStoredError):
    """Raised when a file would exceed the limit on a repository, or the disk is full."""

    status = HTTPStatus.INSUFFICIENT_STORAGE


class BusyError(NotStoredError):
    """Raised while a repository accepts no changes."""

    status = HTTPStatus.SERVICE_UNAVAILABLE


class ExistsError(NotStoredError):
    """Raised when there is a file with the same name, which nothing may replace."""

    status = HTTPStatus.FORBIDDEN


class WrongContentError(NotStoredError):
    """Raised when the content of a file does not have the digest that is its name."""

    status = HTTPStatus.BAD_REQUEST


class Repository:
    """The repository of a user in ``folder``, whose files may take ``limit`` bytes in all.

    Only the thread of the event loop calls its methods, except `count` and `files`.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Begin without a count of bytes, see `count`."""
        self.folder = folder
        self.limit = limit
        self.used = 0
        self.downloads = asyncio.Semaphore(MOST_DOWNLOADS)
        """Limits the memory for answers that their readers do not read."""
        self.lists = asyncio.Semaphore(1)
        """A list of many files takes a thread and memory, which other users need as well."""
        self._uploads = 0
        self._pruning = False

    @property
    def exists(self) -> bool:
        """Whether there is a repository in the folder."""
        return (self.folder / "config").is_file()

    def count(self) -> int:
        """Return how many bytes the files take, apart from locks."""
        return sum(disk_use(size) for kind in KINDS if kind != LOCKS for _, size in self.files(kind))

    def path(self, kind: str, name: str) -> Path:
        """Return the path of a file; ``name`` matches `NAME`."""
        folder = self.folder / kind
        return folder / name[:2] / name if kind == "data" else folder / name

    def files(self, kind: str) -> list[tuple[str, int]]:
        """Return the names and sizes of all files of a kind."""
        folder = self.folder / kind
        found = []
        for each in folder.glob("*") if kind == "data" else [folder]:
            # A copy of a repository may lack folders without files.
            if not each.is_dir():
                continue
            with os.scandir(each) as entries:
                for entry in entries:
                    # Another request may have removed a lock.
                    with suppress(FileNotFoundError):
                        found.append((entry.name, entry.stat().st_size))
        return sorted((name, size) for name, size in found if NAME.fullmatch(name))

    def check_changeable(self) -> None:
        """Raise `BusyError` while the hub prunes the repository, or while too many files arrive."""
        if self._pruning:
            raise BusyError("The hub prunes these snapshots. Try again in a minute.")
        if self._uploads >= MOST_UPLOADS:
            raise BusyError(f"At most {MOST_UPLOADS} files may arrive at the same time. Send fewer.")

    def begin(self, kind: str, size: int) -> int:
        """Count a file that begins to arrive, and return the bytes that it takes. `end` follows in any case.

        Raises `FullError` or `BusyError`.
        """
        self.check_changeable()
        taken = self._reserved(kind, size)
        self._uploads += 1
        self.used += taken
        return taken

    def end(self, taken: int, *, kept: bool) -> None:
        """Stop counting a file that took so many bytes, unless it is kept."""
        self._uploads -= 1
        if not kept:
            self.used -= taken

    def _reserved(self, kind: str, size: int) -> int:
        if kind == LOCKS:
            if size > LARGEST_LOCK or len(self.files(LOCKS)) + self._uploads >= MOST_LOCKS:
                raise FullError(
                    f"A repository may have {MOST_LOCKS} locks of {LARGEST_LOCK} bytes. Run `restic unlock`."
                )
            return 0
        taken = disk_use(size)
        if self.used + taken > self.limit:
            raise FullError(
                f"Your snapshots take {self.used} of {self.limit} bytes, and {size} more do not fit. Leave out large "
                "folders, or ask the administrator to raise FARANDOLE_SNAPSHOTS_BYTES."
            )
        return taken

    def is_in_use(self, now: float) -> bool:
        """Return whether a file arrives, or a lock is valid by the time of its arrival."""
        ages = [now - self.path(LOCKS, name).stat().st_mtime for name, _ in self.files(LOCKS)]
        return self._uploads > 0 or any(age < LOCK_SECONDS for age in ages)

    @contextmanager
    def pruning(self, mark: Path) -> Iterator[None]:
        """Keep users from changing the repository in this context. ``mark`` is a file that exists meanwhile.

        All locks are removed at its beginning, because they are too old, and at its end: they are then the hub's own.
        """
        if self._pruning or self.is_in_use(time.time()):
            raise BusyError("These snapshots are in use.")
        self._pruning = True
        try:
            mark.touch(mode=0o600)
            self.remove_locks()
            yield
        finally:
            self.remove_locks()
            mark.unlink(missing_ok=True)
            self._pruning = False

    def remove_old_locks(self, now: float) -> None:
        """Remove the locks that are no longer valid, which killed programs have left."""
        for name, _ in self.files(LOCKS):
            path = self.path(LOCKS, name)
            with suppress(FileNotFoundError):
                if now - path.stat().st_mtime >= LOCK_SECONDS:
                    path.unlink()

    def remove_locks(self) -> None:
        """Remove all locks."""
        for name, _ in self.files(LOCKS):
            self.path(LOCKS, name).unlink(missing_ok=True)


def disk_use(size: int) -> int:
    """Return the bytes that a file takes on a disk."""
    return -(-size // BLOCK) * BLOCK
