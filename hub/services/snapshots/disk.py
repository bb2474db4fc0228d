"""The disk with the repositories. Snapshots leave room on it, because it may be that of the hub's database."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tornado.log import app_log

from hub.services.snapshots.repository import FullError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FULL = {errno.ENOSPC, errno.EDQUOT}
FULL_DISK = "The disk with the hub's snapshots is full. Tell the administrator."
RESERVE = 1 << 30
"""The bytes that snapshots leave free."""
RESERVED_FILES = 10_000
"""The number of files that can still be created on a disk that snapshots have filled, if the disk limits it."""


class Disk:
    """The disk with the folder ``parts``, in which files arrive. Only the thread of the event loop uses it."""

    def __init__(self, parts: Path) -> None:
        """Begin without files that arrive."""
        self.parts = parts
        self._arriving = 0

    @contextmanager
    def room_for(self, size: int) -> Iterator[None]:
        """Keep room in this context for a file that arrives; raises `FullError`.

        What has already arrived counts twice meanwhile: many large files at the same time need more room.
        """
        found = os.statvfs(self.parts)
        free = found.f_bavail * found.f_frsize - self._arriving - size
        # Some file systems, such as Btrfs, report no limit on the number of files.
        if free < RESERVE or (found.f_files and found.f_favail < RESERVED_FILES):
            raise FullError(FULL_DISK)
        self._arriving += size
        try:
            yield
        finally:
            self._arriving -= size


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
