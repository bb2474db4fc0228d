"""The rank's side of ``%cluster put`` and ``%cluster get``, which copy folders to and from the machine of a rank."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from farandole.exceptions import TransferError
from farandole.files import pieces
from farandole.ranks import context
from farandole.ranks.kernel.transfer import receive_buffer
from farandole.reading import reason


def names(folder: str, skipped: int, most: int) -> list[tuple[str, int]]:
    """Return the names and sizes of up to ``most`` files of a folder, after the first ``skipped`` ones."""
    path = _path(folder)
    with _errors(folder):
        if not path.is_dir():
            raise TransferError(f"there is no folder {str(path)!r} on the workers.")
        return list(islice(pieces.names(path), skipped, skipped + most))


def digests(folder: str, files: Sequence[str]) -> list[list[str]]:
    """Return the digests of the pieces of each file."""
    with _errors(folder):
        return [pieces.digests(_path(folder), name) for name in files]


def read(folder: str, wanted: Sequence[tuple[str, int]]) -> str:
    """Return the ``wanted`` pieces, which are pairs of a file and a number, as one text in base64."""
    with _errors(folder):
        return base64.b64encode(b"".join(pieces.read(_path(folder), *each) for each in wanted)).decode()


def missing(folder: str, files: Sequence[tuple[str, list[str]]]) -> list[list[int] | None]:
    """Return the numbers of the missing pieces of each file, or None for a complete file."""
    with _errors(folder):
        return [pieces.missing(_path(folder), name, wanted) for name, wanted in files]


def write(folder: str, key: str, parts: Sequence[tuple[str, int, int, str]]) -> None:
    """Write pieces that were pushed under ``key``, one after the other.

    ``parts`` has the file, the number, the length and the digest of each piece.
    """
    data = memoryview(receive_buffer().take(key))
    with _errors(folder):
        for name, number, length, digest in parts:
            pieces.write(_path(folder), name, number, bytes(data[:length]), digest)
            data = data[length:]


def finish(folder: str, files: Sequence[tuple[str, int, list[str]]]) -> None:
    """Give files that were received completely their names."""
    with _errors(folder):
        for name, size, wanted in files:
            pieces.finish(_path(folder), name, size, wanted)


def _path(folder: str) -> Path:
    """Return the path of a folder, which is relative to the home."""
    return Path.home() / Path(folder).expanduser()


@contextmanager
def _errors(folder: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as exc:
        raise TransferError(f"{folder!r} on rank {context.rank()}: {reason(exc)}.") from exc
