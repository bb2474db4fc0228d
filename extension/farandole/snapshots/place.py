"""Puts what restic has restored in its place, and overwrites nothing."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePath

from farandole.exceptions import SnapshotError
from farandole.sizes import size_text
from farandole.snapshots.choice import PARTIAL

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of disks without hard links, such as shares of Windows."""
SPARSE_BYTES = 2**20
"""Files of this size may get holes where they have zeros. restic 0.14 writes all zeros."""


@contextmanager
def partial_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder on the disk of ``target``, and remove it at the end with all that is still in it."""
    folder = Path(tempfile.mkdtemp(prefix=PARTIAL, dir=existing_folder(target)))
    try:
        yield folder
    finally:
        _remove(folder)


def existing_folder(target: Path) -> Path:
    """Return the nearest parent of a path that exists."""
    return next(parent for parent in target.parents if os.path.lexists(parent))


def room(target: Path) -> int:
    """Return the free bytes of the disk of ``target``."""
    return shutil.disk_usage(existing_folder(target)).free


def check_room(target: Path, size: int, free: int) -> None:
    """Raise `SnapshotError` if a number of bytes needs more than the free ones."""
    if size > free:
        raise SnapshotError(
            f"{str(target)!r} needs {size_text(size)}, and there is room for {size_text(free)}. Remove files that you "
            "do not need, or name a folder on another disk with `--to`."
        )


def beside(target: Path, taken: float) -> Path:
    """Return a name with the time of a snapshot, such as ``clicks.2026-11-30T140512.csv`` for ``clicks.csv``."""
    moment = datetime.fromtimestamp(taken).astimezone().strftime("%Y-%m-%dT%H%M%S")
    return target.with_name(f"{target.stem}.{moment}{target.suffix}")


def put(partial: Path, inner: PurePath, target: Path) -> None:
    """Move a restored file or folder from a partial folder to ``target``. Raises FileExistsError if that exists by now.

    Folders above it that do not exist are created, and only the user can enter them. restic 0.14 restores the
    permissions of the last of these folders only.
    """
    for parent in reversed(inner.parents):
        (partial / parent).chmod(stat.S_IRWXU)
    while not os.path.lexists(target.parent):
        inner, target = inner.parent, target.parent
    restored = partial / inner
    make_sparse(restored)
    kind = restored.lstat().st_mode
    # Unlike a rename, a link or a new folder fails if the target exists.
    if stat.S_ISDIR(kind):
        target.mkdir(mode=stat.S_IRWXU)
        # Without write permission on a folder itself, it cannot be moved.
        restored.chmod(stat.S_IMODE(kind) | stat.S_IRWXU)
        restored.rename(target)
        target.chmod(stat.S_IMODE(kind))
    else:
        _move_file(restored, target)


def _move_file(restored: Path, target: Path) -> None:
    """Move a file that is no folder. Raises FileExistsError if the target exists."""
    try:
        os.link(restored, target, follow_symlinks=False)
    except OSError as exc:
        if exc.errno not in NO_LINKS:
            raise
        target.touch(mode=stat.S_IRUSR | stat.S_IWUSR, exist_ok=False)
        restored.replace(target)


def make_sparse(restored: Path) -> None:
    """Make holes where large files have zeros, if the program for this is installed. The times stay."""
    program = shutil.which("fallocate")
    if not program:
        return
    for path in _files(restored):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size >= SPARSE_BYTES:
            path.chmod(stat.S_IMODE(found.st_mode) | stat.S_IRUSR | stat.S_IWUSR)
            # Not all file systems have holes.
            subprocess.run([program, "--dig-holes", "--", path], check=False, capture_output=True)
            path.chmod(stat.S_IMODE(found.st_mode))
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _files(restored: Path) -> Iterator[Path]:
    if restored.is_symlink() or not restored.is_dir():
        yield restored
        return
    for folder, _, names in os.walk(restored):
        yield from (Path(folder, name) for name in names)


def _remove(folder: Path) -> None:
    """Remove a folder, also if folders in it have been restored without the permission to enter or to change them."""
    for path, names, _ in os.walk(folder):
        for inner in (Path(path, name) for name in names):
            if not inner.is_symlink():
                inner.chmod(stat.S_IRWXU)
    shutil.rmtree(folder)
