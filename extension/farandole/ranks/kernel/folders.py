"""The rank's side of ``%cluster put`` and ``%cluster get``, which copy folders to and from the machine of a rank.

A file that cannot be read or written does not end a copy: the functions return the reason in place of a result.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from farandole.exceptions import TransferError
from farandole.files import pieces
from farandole.ranks import context
from farandole.ranks.kernel.transfer import receive_buffer
from farandole.reading import reason

T = TypeVar("T")

_walks: dict[str, Iterator[tuple[str, int]]] = {}
"""The listings that are in progress, by key."""


def names(folder: str, key: str, most: int) -> list[tuple[str, int]]:
    """Return the names and sizes of the next files of a folder. No files mean that the listing ``key`` has ended."""
    path = _path(folder)
    if not path.is_dir():
        raise TransferError(f"there is no folder {str(path)!r} on the workers.")
    try:
        found = list(islice(_walks.setdefault(key, pieces.names(path)), most))
    except OSError as exc:
        raise TransferError(f"{folder!r} on rank {context.rank()}: {reason(exc)}.") from exc
    if not found:
        del _walks[key]
    return found


def contents(folder: str, wanted: Sequence[tuple[str, int, int]]) -> list[list[Any] | str]:
    """Return the size, the permissions and the digests of pieces of each file.

    ``wanted`` has a file, the first piece and the largest number of pieces.
    """
    path = _path(folder)

    def content(name: str, first: int, most: int) -> list[Any]:
        found = pieces.content(path, name, first, most)
        return [found.size, found.mode, found.digests]

    return [_or_reason(content, *each) for each in wanted]


def read(folder: str, wanted: Sequence[tuple[str, int]]) -> list[list[str] | str]:
    """Return the ``wanted`` pieces, which are pairs of a file and a number, each as a list with one text in base64."""
    path = _path(folder)

    def encoded(name: str, number: int) -> list[str]:
        return [base64.b64encode(pieces.read(path, name, number)).decode()]

    return [_or_reason(encoded, *each) for each in wanted]


def differing(folder: str, files: Sequence[tuple[str, int, list[str], int | None]]) -> list[list[int] | str | None]:
    """Return the numbers of the missing pieces of each file, or None for a complete file.

    ``files`` has the file, the first piece, the wanted digests, and the wanted size or None.
    """
    path = _path(folder)
    if path.exists() and not path.is_dir():
        raise TransferError(f"{str(path)!r} on the workers is not a folder.")
    return [_or_reason(pieces.differing, path, *each) for each in files]


def write(folder: str, key: str, parts: Sequence[tuple[str, int, int, str, int]]) -> list[str | None]:
    """Write pieces that were pushed under ``key``, one after the other.

    ``parts`` has the file, the number, the length, the digest and the permissions of each piece.
    """
    data = memoryview(receive_buffer().take(key))
    outcomes = []
    for part, number, length, digest, mode in parts:
        piece = bytes(data[:length])
        outcomes.append(_or_reason(partial(pieces.write, mode=mode), _path(folder), part, number, piece, digest))
        data = data[length:]
    return outcomes


def finish(folder: str, files: Sequence[tuple[str, str, int, int]]) -> list[str | None]:
    """Give files that were received completely their names.

    ``files`` has the name of the received file, its final name, its size and its permissions.
    """
    return [_or_reason(pieces.finish, _path(folder), *each) for each in files]


def _path(folder: str) -> Path:
    """Return the path of a folder, which is relative to the home."""
    return Path.home() / Path(folder).expanduser()


def _or_reason(work: Callable[..., T], *arguments: object) -> T | str:
    """Return the result of work with files, or the reason why it failed."""
    try:
        return work(*arguments)
    except (OSError, ValueError) as exc:
        return reason(exc)
