"""Locks, and files that get their names when they are complete."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NEW = ".new-"
"""How the name of a file or folder begins that is not complete."""
TOKEN_BYTES = 4


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock, which is a file, and hold it.

    The system releases the lock of a process that ends, so that the wait takes at most as long as the work of others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
