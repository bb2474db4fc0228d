"""Finds out whether files have changed since they were last read."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Version: TypeAlias = tuple[int, ...]
"""Numbers that change whenever a file or folder changes. There are no numbers if it does not exist."""


def version_of(path: Path) -> Version:
    """Return the version of one file or folder. Symbolic links are not followed."""
    with suppress(OSError, ValueError):
        stat = path.lstat()
        return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
    return ()


def versions_of(paths: Iterable[Path]) -> tuple[Version, ...]:
    """Return the versions of several files or folders."""
    return tuple(map(version_of, paths))


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, or 0 if it does not exist. Symbolic links are not followed."""
    with suppress(OSError, ValueError):
        return path.lstat().st_size
    return 0
