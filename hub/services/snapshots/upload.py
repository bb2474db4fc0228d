"""A file that arrives. It gets its place only when it is complete and on the disk, and never replaces another file."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tornado.log import app_log

from hub.services.snapshots.repository import LOCKS, ExistsError, FullError, WrongContentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.services.snapshots.repository import Repository

FULL = {errno.ENOSPC, errno.EDQUOT}
FULL_DISK = "The disk with the hub's snapshots is full. Tell the administrator."
RESERVE = 1 << 30
"""The bytes that snapshots leave free on the disk, which may be that of the hub's database."""


class Upload:
    """The content of a file of ``size`` bytes, which has no name that readers see until `commit`."""

    def __init__(self, repository: Repository, kind: str, name: str, size: int, parts: Path) -> None:
        """Begin to receive a file in the folder ``parts``, on the same disk as its place; raises `NotStoredError`."""
        self._path = repository.path(kind, name)
        if self._path.exists():
            raise ExistsError("The repository has a file with this name.")
        # A full repository and a full disk must stay readable, and restic locks a repository to read it.
        if kind != LOCKS and shutil.disk_usage(parts).free - size < RESERVE:
            raise FullError(FULL_DISK)
        self._repository = repository
        self._digest = hashlib.sha256()
        self._missing = size
        self._kept = self._closed = False
        with full_disk():
            descriptor, part = tempfile.mkstemp(dir=parts)
        self._file, self._part = os.fdopen(descriptor, "wb"), Path(part)
        try:
            self._taken = repository.begin(kind, size)
        except BaseException:
            self._discard()
            raise

    @property
    def is_complete(self) -> bool:
        """Whether all of the content has arrived."""
        return self._missing == 0

    def write(self, chunk: bytes) -> None:
        """Add to the content; raises `FullError` if the disk is full."""
        self._missing -= len(chunk)
        self._digest.update(chunk)
        with full_disk():
            self._file.write(chunk)

    def commit(self) -> None:
        """Give the file its place, on the disk when this returns; raises `NotStoredError`. Any thread may call it."""
        if self._digest.hexdigest() != self._path.name:
            raise WrongContentError("The name of a file must be the SHA-256 of its content. Send the file again.")
        with full_disk():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                os.link(self._part, self._path)
            except FileExistsError as exc:
                raise ExistsError("The repository has a file with this name.") from exc
            self._kept = True
            sync_folder(self._path.parent)

    def close(self) -> None:
        """End the upload, whatever became of it."""
        if not self._closed:
            self._closed = True
            self._discard()
            self._repository.end(self._taken, kept=self._kept)

    def _discard(self) -> None:
        self._part.unlink(missing_ok=True)
        # What is still in the buffer does not matter, so neither does a full disk.
        self._file.raw.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """Raise `FullError` if the disk is full in this context."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in FULL:
            raise
        app_log.error("The disk with the snapshots is full: %s", exc)
        raise FullError(FULL_DISK) from exc


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
