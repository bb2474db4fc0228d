"""Locks, and files that get their names when they are complete."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

NEW = ".new-"
"""How the name of a file or folder begins that is not complete."""
TOKEN_BYTES = 4
NO_LOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Errors of file systems without locks, such as Lustre if it is mounted without `flock`."""


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Wait until no other process holds the lock, which is a file, and hold it.

    The system releases the lock of a process that ends, so that the wait takes at most as long as the work of others.
    The value is False if the file system has no locks. Other processes may then do the same work at the same time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        yield _is_locked(lock)


def _is_locked(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as exc:
        if exc.errno not in NO_LOCK:
            raise
        return False
    return True


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, which replaces ``path`` at the end. If the block raises an error, nothing is left."""
    temporary = temporary_beside(path)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            # After a crash of the machine, a file could otherwise have its name but not its content.
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_beside(path: Path) -> Path:
    """Return an unused name in the same folder."""
    return path.with_name(f"{NEW}{path.name}-{secrets.token_hex(TOKEN_BYTES)}")


def left_beside(path: Path) -> list[Path]:
    """Return what `temporary_beside` has named for the same path, and killed processes have left."""
    name = re.compile(rf"{re.escape(NEW + path.name)}-[0-9a-f]{{{2 * TOKEN_BYTES}}}")
    return [other for other in path.parent.iterdir() if name.fullmatch(other.name)]
