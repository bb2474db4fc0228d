"""Writes tar files piece by piece, with the same bytes whenever they are written."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

END = bytes(2 * tarfile.BLOCKSIZE)
"""The last piece of a tar file."""


def folder_entry(path: str) -> bytes:
    """Return the entry of a folder. It belongs to root, and only root can write to it."""
    return _header(f"{path}/", 0, tarfile.DIRTYPE, 0o755)


def file_entry(path: str, size: int, content: Iterator[bytes]) -> Iterator[bytes]:
    """Return the entry of a file in pieces. It belongs to root, and nobody can write to it.

    Raises ValueError, at the end, if the content does not have ``size`` bytes.
    """
    yield _header(path, size, tarfile.REGTYPE, 0o444)
    count = 0
    for piece in content:
        count += len(piece)
        yield piece
    if count != size:
        raise ValueError(f"{path.rpartition('/')[2]!r} has {count} bytes instead of {size}")
    yield bytes(-size % tarfile.BLOCKSIZE)


def _header(path: str, size: int, kind: bytes, mode: int) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.size, entry.type, entry.mode = size, kind, mode
    return entry.tobuf(tarfile.PAX_FORMAT)
