"""A small file system for the runs of a soak, so that it can be full without harm to the machine."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hub.process import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 192 * 2**20
CHECKPOINT_BYTES = 500_000
"""A little less than a checkpoint of the soak's training takes."""
FILL_SECONDS = 30.0


class Volume:
    """A folder, on a small file system of its own where this user may mount one."""

    def __init__(self, folder: Path, *, small: bool) -> None:
        self.folder = folder
        self.small = small
        self._filler = folder / "filler"

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Volume]:
        """Make a volume, and unmount it at the end."""
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "farandole-chaos", str(folder)]
        try:
            small = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            # There is no such program here.
            small = False
        try:
            yield cls(folder, small=small)
        finally:
            if small:
                # Also where a process of the soak still has a file open there: the report matters more.
                subprocess.run(["umount", "-l", str(folder)], check=True)

    def fill(self, share: float) -> None:
        """Leave only so much of a checkpoint's size free: the next one fails in the middle.

        To be repeated: a checkpoint that was just being written makes room when it takes an older one's place.
        """
        wait_until(lambda: self._filled(share), FILL_SECONDS)

    def _filled(self, share: float) -> bool:
        """Fill it; returns whether nobody else took room in between."""
        found = os.statvfs(self.folder)
        more = found.f_bavail * found.f_frsize - int(share * CHECKPOINT_BYTES)
        with self._filler.open("ab") as file:
            try:
                if more > 0:
                    os.posix_fallocate(file.fileno(), file.tell(), more)
            except OSError as exc:
                if exc.errno != errno.ENOSPC:
                    raise
                return False
        return True

    def free(self) -> None:
        """Make the room free again."""
        self._filler.unlink(missing_ok=True)
