"""The rank's side of ``%cluster put`` and ``%cluster get``, which copy folders to and from the machine of a rank.

- A file that cannot be read or written does not end a copy: the functions return the reason in place of a result.
- A driver repeats a call whose answer was lost with its connection, so each function may be called again.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from farandole.exceptions import TransferError
from farandole.files import pieces
from farandole.files.pieces import or_reason
from farandole.ranks import context
from farandole.ranks.kernel.transfer import receive_buffer
from farandole.reading import reason


class Listing:
    """A listing of a folder in pages."""

    def __init__(self, folder: Path) -> None:
        self._files = pieces.names(folder)
        self._number = -1
        self._page: list[tuple[str, int | None]] = []

    def page(self, number: int, most: int) -> list[tuple[str, int | None]]:
        """Return the next page, or the last one again. An empty page is the end."""
        if number != self._number:
            self._page, self._number = list(islice(self._files, most)), number
        return self._page


_listings: dict[str, Listing] = {}
"""The newest listing by its key. A listing whose driver has gone is not kept."""
_pushes: dict[str, int] = {}
"""The number of the newest push of the newest copy, by the key of the copy."""


def names(folder: str, key: str, number: int, most: int) -> list[tuple[str, int | None]]:
    """Return the names and sizes of the next files of a folder: page ``number`` of the listing ``key``.

    No files mean that the listing has ended.
    """
    path = _path(folder)
    if path.exists() and not path.is_dir():
        raise TransferError(f"{str(path)!r} on the workers is not a folder.")
    if not path.is_dir():
        raise TransferError(f"there is no folder {str(path)!r} on the workers.")
    if key not in _listings:
        _listings.clear()
        _listings[key] = Listing(path)
    try:
        return _listings[key].page(number, most)
    except OSError as exc:
        raise TransferError(f"{folder!r} on rank {context.rank()}: {reason(exc)}.") from exc


def contents(folder: str, wanted: Sequence[tuple[str, int, int]]) -> list[list[Any] | str]:
    """Return the size, the permissions and the digests of pieces of each file.

    ``wanted`` has a file, the first piece and the largest number of pieces.
    """

    def content(path: Path, name: str, first: int, most: int) -> list[Any]:
        found = pieces.content(path, name, first, most)
        return [found.size, found.mode, found.digests]

    path = _path(folder)
    return [or_reason(path, content, *each) for each in wanted]


def read(folder: str, wanted: Sequence[tuple[str, int]]) -> list[list[str] | str]:
    """Return the ``wanted`` pieces, which are pairs of a file and a number, each as a list with one text in base64."""

    def encoded(path: Path, name: str, number: int) -> list[str]:
        return [base64.b64encode(pieces.read(path, name, number)).decode()]

    path = _path(folder)
    return [or_reason(path, encoded, *each) for each in wanted]


def differing(folder: str, files: Sequence[tuple[str, int, list[str], int | None]]) -> list[list[int] | str | None]:
    """Return the numbers of the missing pieces of each file, or None for a complete file.

    ``files`` has the file, the first piece, the wanted digests, and the wanted size or None.
    """
    path = _path(folder)
    pieces.check_target(path, "on the workers")
    return [or_reason(path, pieces.differing, *each) for each in files]


def write(folder: str, key: str, push: int, parts: Sequence[tuple[str, int, int, str, int]]) -> list[str | None] | None:
    """Write the pieces of a push of the copy ``key``, one after the other. Return None if they have not all arrived.

    The driver counts the pushes of a copy. ``parts`` has the file, the number, the length, the digest and the
    permissions of each piece.
    """
    try:
        data = memoryview(receive_buffer().take(pieces.push_key(key, push)))
    except TransferError:
        return None
    # What was sent before a connection broke may arrive after the driver has pushed the same pieces again, and even
    # after the file has its name.
    if push < _pushes.get(key, push):
        return None
    if key not in _pushes:
        _pushes.clear()
    _pushes[key] = push
    if len(data) != sum(length for _, _, length, _, _ in parts):
        return None
    path, outcomes = _path(folder), []
    for part, number, length, digest, mode in parts:
        work = partial(pieces.write, mode=mode)
        outcomes.append(or_reason(path, work, part, number, bytes(data[:length]), digest))
        data = data[length:]
    return outcomes


def finish(folder: str, files: Sequence[tuple[str, str, int, int]], complete: Sequence[str]) -> list[str | None]:
    """Give files that were received completely their names, and remove what cut copies of the ``complete`` ones left.

    ``files`` has the name of the received file, its final name, its size and its permissions.
    """
    path = _path(folder)
    outcomes = [or_reason(path, pieces.finish, *each) for each in files]
    or_reason(path, pieces.clean, complete)
    return outcomes


def _path(folder: str) -> Path:
    """Return the path of a folder, which is relative to the home."""
    path = Path(folder)
    with suppress(RuntimeError):  # `~` is followed by the name of no user
        path = path.expanduser()
    return Path.home() / path
