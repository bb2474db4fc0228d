"""Reads and writes the files of a folder in pieces with digests, so that a copy can continue after it was cut.

Both ends of a copy use these functions. A file that is being received has the suffix `PART` until it is complete.
Names of files are relative paths with slashes. Links and special files are not copied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from farandole.reading import check_parents, open_regular

PIECE_BYTES = 4_000_000
"""The size of a piece in bytes. Jupyter Server accepts messages of up to 10 MiB, and some contain a piece as text."""
PART = ".farandole-part"
DIGEST_BYTES = 16


def names(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the names and the sizes in bytes of all files below a folder, in an order that does not change.

    Raises:
        OSError: the folder or a folder below it cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        folders.sort()
        for name in sorted(files):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink() and not name.endswith(PART):
                yield path.relative_to(folder).as_posix(), path.stat().st_size


def count(size: int) -> int:
    """Return the number of pieces of a file with ``size`` bytes. An empty file has none."""
    return -(-size // PIECE_BYTES)


def digest(data: bytes) -> str:
    """Return the digest of a piece."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digests(folder: Path, name: str) -> list[str]:
    """Return the digest of each piece of a file.

    Raises:
        OSError, ValueError: the file cannot be read, or is not a regular file below the folder.
    """
    with open_regular(folder, name) as file:
        return [digest(piece) for piece in iter(lambda: file.read(PIECE_BYTES), b"")]


def read(folder: Path, name: str, number: int) -> bytes:
    """Return a piece of a file. Raises OSError or ValueError as `digests` does."""
    with open_regular(folder, name) as file:
        file.seek(number * PIECE_BYTES)
        return file.read(PIECE_BYTES)


def missing(folder: Path, name: str, wanted: Sequence[str]) -> list[int] | None:
    """Return the numbers of the pieces that a file still needs to have the ``wanted`` digests.

    The result is None if the file is complete. An empty list means that only `finish` has to be called.

    Raises:
        OSError, ValueError: a file cannot be read, or a name leads out of the folder.
    """
    target = _target(folder, name)
    if target.is_symlink() or target.is_dir():
        raise ValueError(f"{name!r} is a folder or a link there, and not a file")
    if target.exists() and digests(folder, name) == list(wanted):
        return None
    part = f"{name}{PART}"
    held = digests(folder, part) if _target(folder, part).exists() else []
    return [number for number, one in enumerate(wanted) if number >= len(held) or held[number] != one]


def write(folder: Path, name: str, number: int, data: bytes, wanted: str) -> None:
    """Write a piece of a file that is being received.

    Raises:
        OSError, ValueError: the file cannot be written, or the piece does not have the ``wanted`` digest.
    """
    if digest(data) != wanted:
        raise ValueError(f"{name!r} was damaged on its way, or changed while it was copied; repeat the copy")
    part = _target(folder, f"{name}{PART}")
    part.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.seek(number * PIECE_BYTES)
        file.write(data)


def finish(folder: Path, name: str, size: int, wanted: Sequence[str]) -> None:
    """Give a file that was received its name. It replaces the file that has this name.

    Raises:
        OSError, ValueError: the file cannot be written, or its pieces do not have the ``wanted`` digests.
    """
    part = _target(folder, f"{name}{PART}")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    os.truncate(part, size)
    if digests(folder, part.relative_to(folder).as_posix()) != list(wanted):
        raise ValueError(f"{name!r} changed while it was copied; repeat the copy")
    part.replace(_target(folder, name))


def _target(folder: Path, name: str) -> Path:
    """Return the path of a file. Raises ValueError if the name leads out of the folder."""
    check_parents(folder, name)
    return folder / PurePosixPath(name)
