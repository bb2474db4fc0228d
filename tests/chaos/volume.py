"""A small file system for the runs of a soak test, which can be filled without harm to the rest of the machine."""

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
"""A little less than the size of a checkpoint in a soak test, in bytes."""
FILL_SECONDS = 30.0


class Volume:
    """A folder that is a small file system, if this user may mount one."""

    def __init__(self, folder: Path, *, small: bool) -> None:
        self.folder = folder
        self.small = small
        self._filler = folder / "filler"

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator[Volume]:
        """Create the folder, mount a small file system on it if possible, and unmount the file system at the end."""
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "farandole-chaos", str(folder)]
        try:
            small = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            # This machine has no `mount` program.
            small = False
        try:
            yield cls(folder, small=small)
        finally:
            if small:
                # A process may still have a file open there, so detach the folder now. The kernel unmounts it later.
                subprocess.run(["umount", "-l", str(folder)], check=True)

    def fill(self, share: float) -> None:
        """Leave only this fraction of a checkpoint's size free, so that the next checkpoint fails partway.

        Call this repeatedly, because a checkpoint frees space when it replaces an older one.
        """
        wait_until(lambda: self._filled(share), FILL_SECONDS)

    def _filled(self, share: float) -> bool:
        """Fill the volume, and return whether this succeeded. It fails if another process has taken the space."""
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
        """Free the space that `fill` has taken."""
        self._filler.unlink(missing_ok=True)
