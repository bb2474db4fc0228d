"""Reads and writes the files of a folder in pieces with digests, so that a copy can continue after it was cut.

Both ends of a copy use these functions. A file that is being received has another name, which `part_of` returns, until
it is complete. Names of files are relative paths with slashes. Links and special files are not copied.

Several copies may write to one folder at the same time. Copies of the same content write to the same part, so a copy
compares a part with the digests once more before it calls `finish`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeVar

from farandole.exceptions import TransferError
from farandole.reading import SAFE, check_parents, open_regular, reason

PIECE_BYTES = 4_000_000
"""The size of a piece in bytes. Jupyter Server accepts messages of up to 10 MiB, and some contain a piece as text."""
PART = ".farandole-part"
DIGEST_BYTES = 16
NAME_DIGITS = 12
PREFIX_LENGTH = NAME_DIGITS + 2
CROSSED = "another copy wrote to it at the same time; repeat the copy"
"""The reason why a file that was received is not complete."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk that is full. No other file can be written either."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Content:
    """The size of a file in bytes, its permissions, and the digests of some of its pieces."""

    size: int
    mode: int
    digests: list[str]


def names(folder: Path) -> Iterator[tuple[str, int | None]]:
    """Yield the names and the sizes in bytes of all files below a folder, in an order that does not change.

    Links and special files, which are not copied, have None in place of a size.

    Raises:
        OSError: the folder or a folder below it cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        folders.sort()
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in sorted([*files, *links]):
            path = Path(place, name)
            with suppress(FileNotFoundError):
                found = path.lstat()
                if not name.endswith(PART):
                    yield path.relative_to(folder).as_posix(), found.st_size if stat.S_ISREG(found.st_mode) else None


def count(size: int) -> int:
    """Return the number of pieces of a file with ``size`` bytes. An empty file has none."""
    return -(-size // PIECE_BYTES)


def digest(data: bytes) -> str:
    """Return the digest of a piece."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def content(folder: Path, name: str, first: int = 0, most: int | None = None) -> Content:
    """Return the size and permissions of a file, and the digests of up to ``most`` pieces from number ``first`` on.

    Raises:
        OSError, ValueError: the file cannot be read, or is not a regular file below the folder.
    """
    with open_regular(folder, name) as file:
        found = os.fstat(file.fileno())
        file.seek(first * PIECE_BYTES)
        data = iter(lambda: file.read(PIECE_BYTES), b"")
        return Content(
            size=found.st_size, mode=found.st_mode & 0o777, digests=[digest(one) for one in islice(data, most)]
        )


def read(folder: Path, name: str, number: int) -> bytes:
    """Return a piece of a file. Raises OSError or ValueError as `content` does."""
    with open_regular(folder, name) as file:
        file.seek(number * PIECE_BYTES)
        return file.read(PIECE_BYTES)


def part_of(name: str, digests: Sequence[str]) -> str:
    """Return the name of a file while it is being received.

    It depends on the content, so that two copies of different files with one name do not write into the same file.
    """
    path = PurePosixPath(name)
    return str(path.with_name(f"{_prefix(path.name)}{digest(''.join(digests).encode())[:NAME_DIGITS]}{PART}"))


def push_key(copy: str, push: int) -> str:
    """Return the key of the pushed bytes, for the key of a copy and the number of a push."""
    return f"{copy}-{push}"


def check_target(folder: Path, where: str) -> None:
    """Raise TransferError unless files can be written below a folder, which need not exist. ``where`` says whose it is.

    Without this check, all files would be sent before the copy fails.
    """
    place = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    if not place.is_dir():
        raise TransferError(f"{str(place)!r} {where} is not a folder.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise TransferError(
            f"the folder {str(place)!r} {where} cannot be written; name another one with `--to FOLDER`."
        )


def differing(folder: Path, name: str, first: int, wanted: Sequence[str], size: int | None = None) -> list[int] | None:
    """Return the numbers of the pieces, from ``first`` on, that do not have the ``wanted`` digests, or None.

    None means that the file has them all. A file that does not exist has no piece, nor has one whose size is not
    ``size``.

    Raises:
        OSError, ValueError: the file cannot be read, is not a regular file, or is not below the folder.
    """
    everything = list(range(first, first + len(wanted)))
    if not os.path.lexists(_target(folder, name)):
        return everything
    found = content(folder, name, first, len(wanted))
    if size is not None and found.size != size:
        return everything
    held = dict(enumerate(found.digests, first))
    return [number for number in everything if held.get(number) != wanted[number - first]] or None


def write(folder: Path, part: str, number: int, data: bytes, wanted: str, *, mode: int = 0o666) -> None:
    """Write a piece of a file that is being received, which gets the permissions ``mode`` as far as the umask allows.

    Raises:
        OSError, ValueError: the file cannot be written, or the piece does not have the ``wanted`` digest.
    """
    if digest(data) != wanted:
        raise ValueError("it was damaged on its way, or changed while it was copied; repeat the copy")
    with os.fdopen(_open(folder, part, mode), "wb") as file:
        file.seek(number * PIECE_BYTES)
        file.write(data)


def finish(folder: Path, part: str, name: str, size: int, mode: int = 0o666) -> None:
    """Give a file that was received completely its name. It replaces the file that has this name.

    The disk may not have written the data yet, because waiting for it would take most of the time of a copy of many
    small files. After a power failure, the same copy finds damaged files by their digests, and repairs them.

    Raises:
        OSError, ValueError: the file cannot be written, or another copy has finished or removed it.
    """
    target = _target(folder, name)
    if target.is_symlink() or target.is_dir():
        raise ValueError(f"{name!r} is a folder or a link there, and not a file")
    if not size:
        os.close(_open(folder, part, mode))
    try:
        found = _target(folder, part).lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            raise ValueError(f"{part!r} is not the file that was received")
        _target(folder, part).replace(target)
    except FileNotFoundError as exc:
        # An earlier call whose answer was lost, or another copy of the same content, may have done this already.
        if not target.exists() or part_of(name, content(folder, name).digests) != part:
            raise ValueError(CROSSED) from exc


def clean(folder: Path, complete: Iterable[str]) -> None:
    """Remove what cut copies of other versions of complete files have left. They will not be continued."""
    known: defaultdict[Path, set[str]] = defaultdict(set)
    for name in complete:
        target = _target(folder, name)
        known[target.parent].add(_prefix(target.name))
    # A folder may contain many thousands of files, so it is read only once.
    for place, prefixes in known.items():
        with os.scandir(place) as entries:
            old = [one.path for one in entries if one.name.endswith(PART) and one.name[:PREFIX_LENGTH] in prefixes]
        for path in old:
            Path(path).unlink(missing_ok=True)


def or_reason(folder: Path, work: Callable[..., T], *arguments: object) -> T | str:
    """Return the result of work with files of a folder, or the reason why it failed for this file.

    Raises TransferError if the disk is full, because no other file can be written either.
    """
    try:
        return work(folder, *arguments)
    except OSError as exc:
        if exc.errno in FULL:
            raise TransferError(
                f"there is no space for more files in {str(folder)!r} ({exc.strerror}). Make room, and repeat the "
                "copy: it continues where it ended."
            ) from exc
        return reason(exc)
    except ValueError as exc:
        return reason(exc)


def _open(folder: Path, part: str, mode: int) -> int:
    """Open a file that is being received. Raises ValueError if there is something else in its place."""
    path = _target(folder, part)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | SAFE, mode & 0o777 | 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{part!r} is not a regular file")
    return descriptor


def _prefix(name: str) -> str:
    """Return how the names of a file's parts begin. The name may contain bytes or surrogates that are no text."""
    return f".{digest(name.encode(errors='surrogatepass'))[:NAME_DIGITS]}-"


def _target(folder: Path, name: str) -> Path:
    """Return the path of a file. Raises ValueError if the name leads out of the folder."""
    check_parents(folder, name)
    return folder / PurePosixPath(name)
