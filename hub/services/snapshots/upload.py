"""A file that arrives. It gets its place only when it is complete and on the disk, and never replaces another file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hub.services.snapshots.disk import full_disk, sync_folder
from hub.services.snapshots.repository import LOCKS, ExistsError, WrongContentError

if TYPE_CHECKING:
    from hub.services.snapshots.disk import Disk
    from hub.services.snapshots.repository import Repository


class Upload:
    """The content of a file of ``size`` bytes, which has no name that readers see until `commit`."""

    def __init__(self, repository: Repository, kind: str, name: str, size: int, disk: Disk) -> None:
        """Begin to receive a file on the disk, which is also that of its place; raises `NotStoredError`."""
        self._path = repository.path(kind, name)
        self._digest = hashlib.sha256()
        self._missing = size
        self._kept = False
        with ExitStack() as ends:
            # A full repository and a full disk must stay readable, and restic locks a repository to read it.
            if kind != LOCKS:
                ends.enter_context(disk.room_for(size))
            taken = repository.begin(kind, size)
            ends.callback(lambda: repository.end(taken, kept=self._kept))
            with full_disk():
                descriptor, part = tempfile.mkstemp(dir=disk.parts)
            self._file, self._part = os.fdopen(descriptor, "wb"), Path(part)
            ends.callback(self._discard)
            self._ends = ends.pop_all()

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
        """Give the file its place, on the disk when this returns; raises `NotStoredError`. Any thread may call it.

        It also returns if the repository has the file already: a client that did not get the answer sends it again.
        """
        if self._digest.hexdigest() != self._path.name:
            if self._path.exists():
                raise ExistsError("The repository has a file with this name.")
            raise WrongContentError("The name of a file must be the SHA-256 of its content. Send the file again.")
        with full_disk():
            self._file.flush()
            os.fsync(self._file.fileno())
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.link(self._part, self._path)
                self._kept = True
            sync_folder(self._path.parent)

    def close(self) -> None:
        """End the upload, whatever became of it. A second call does nothing."""
        self._ends.close()

    def _discard(self) -> None:
        self._part.unlink(missing_ok=True)
        # What is still in the buffer does not matter, so neither does a full disk.
        self._file.raw.close()
