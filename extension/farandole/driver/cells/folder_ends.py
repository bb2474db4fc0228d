"""The two ends of a copy of a folder: this machine, and the machine of rank 0."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.loop import in_thread
from farandole.exceptions import DeadlineError, RankDiedError, RankError, TransferError
from farandole.files import pieces
from farandole.files.pieces import Content
from farandole.protocol import PUSH_TARGET

CALL_SECONDS = 600.0
"""Timeout of a call. A rank computes the digests of hundreds of pieces in a call."""
PUSH_BYTES = 1_000_000
"""The largest message with pieces. The pings of a websocket have to wait behind a message, so a larger one would break
the connection of a laptop that sends less than a few megabits a second."""
PUSHES = 5
"""How often pieces are pushed that have not arrived because the connection broke."""
LISTED_FILES = 20_000

T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class File:
    """A file of the folder that is copied. ``missing`` lists the pieces that the receiver lacks."""

    name: str
    size: int
    mode: int = 0
    digests: list[str] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)

    @property
    def part(self) -> str:
        """The name of the file while it is being received."""
        return pieces.part_of(self.name, self.digests)

    def length(self, number: int) -> int:
        """Return the number of bytes of a piece."""
        return min(pieces.PIECE_BYTES, self.size - number * pieces.PIECE_BYTES)


Piece: TypeAlias = tuple[File, int]
"""A file and the number of one of its pieces."""
Span: TypeAlias = tuple[File, int, int]
"""A file, the number of one of its pieces, and the largest number of pieces from there on."""
Listed: TypeAlias = "Sequence[tuple[str, int | None]]"
"""The names and sizes of files. Links and special files have None in place of a size."""


class End(Protocol):
    """One end of a copy. In each list that a method returns, a text is the reason why a file has no result."""

    async def listing(self) -> Listed:
        """Return the files of the folder."""

    async def contents(self, spans: Sequence[Span]) -> Sequence[Content | str]:
        """Return the sizes, permissions and digests of files."""

    async def differing(self, spans: Sequence[Span], *, parts: bool) -> Sequence[list[int] | str | None]:
        """Return the numbers of the pieces that are missing, or None for a file that is complete.

        With ``parts``, these are the pieces that have not been received yet.
        """

    async def read(self, batch: Sequence[Piece]) -> Sequence[bytes | str]:
        """Return pieces of files."""

    async def write(self, batch: Sequence[Piece], data: Sequence[bytes]) -> Sequence[str | None]:
        """Write pieces of files that are being received."""

    async def finish(self, files: Sequence[File], complete: Sequence[str]) -> Sequence[str | None]:
        """Give files that were received completely their names.

        For these and the ``complete`` ones, remove what earlier copies have left.
        """


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def listing(self) -> Listed:
        """Return the files. Raises TransferError if the folder cannot be read."""
        [listed] = await self._each(lambda folder: list(pieces.names(folder)), [()])
        if isinstance(listed, str):
            raise TransferError(f"the folder on this machine: {listed}.")
        return listed

    async def contents(self, spans: Sequence[Span]) -> list[Content | str]:
        """Return the sizes, permissions and digests of files of this machine."""
        return await self._each(pieces.content, [(file.name, first, most) for file, first, most in spans])

    async def differing(self, spans: Sequence[Span], *, parts: bool) -> list[list[int] | str | None]:
        """Return the missing pieces. Raises TransferError if files cannot be written to the folder."""
        pieces.check_target(self._folder, "on this machine")
        return await self._each(pieces.differing, [wanted(span, parts) for span in spans])

    async def read(self, batch: Sequence[Piece]) -> list[bytes | str]:
        """Return pieces of files of this machine."""
        return await self._each(pieces.read, [(file.name, number) for file, number in batch])

    async def write(self, batch: Sequence[Piece], data: Sequence[bytes]) -> list[str | None]:
        """Write pieces on this machine. Raises TransferError if the disk is full."""

        def write(folder: Path, file: File, number: int, piece: bytes) -> None:
            pieces.write(folder, file.part, number, piece, file.digests[number], mode=file.mode)

        return await self._each(write, [(*piece, one) for piece, one in zip(batch, data, strict=True)])

    async def finish(self, files: Sequence[File], complete: Sequence[str]) -> list[str | None]:
        """Give files of this machine their names."""
        outcomes = await self._each(pieces.finish, [_end_of(file) for file in files])
        await self._each(pieces.clean, [(complete,)])
        return outcomes

    async def _each(self, work: Callable[..., T], arguments: Sequence[tuple[object, ...]]) -> list[T | str]:
        """Do work on each of this machine's files. Return the results, or the reasons why it failed.

        Folders may have hundreds of thousands of files, so all of them together use one thread.
        """
        return await in_thread(lambda: [pieces.or_reason(self._folder, work, *each) for each in arguments])


class RankFolder:
    """A folder of rank 0's machine. A relative path is relative to the home of the workers.

    Calls whose answers are lost with the connection are repeated, also after hours without a network.
    """

    def __init__(self, group: RankGroup, folder: str) -> None:
        self._group = group
        self._folder = folder
        self._key = uuid.uuid4().hex
        self._pushes = 0

    async def listing(self) -> Listed:
        """Return the files. Raises TransferError if the folder cannot be read."""
        listed, number = [], 0
        while found := await self._ask(rank_calls.file_names(self._folder, self._key, number, LISTED_FILES)):
            listed += found
            number += 1
        return listed

    async def contents(self, spans: Sequence[Span]) -> list[Content | str]:
        """Return the sizes, permissions and digests of files of the rank's machine."""
        call = rank_calls.file_contents(self._folder, [(file.name, first, most) for file, first, most in spans])
        return [
            one if isinstance(one, str) else Content(size=one[0], mode=one[1], digests=one[2])
            for one in await self._ask(call)
        ]

    async def differing(self, spans: Sequence[Span], *, parts: bool) -> list[list[int] | str | None]:
        """Return the missing pieces. Raises TransferError if files cannot be written to the folder."""
        return await self._ask(rank_calls.differing_pieces(self._folder, [wanted(span, parts) for span in spans]))

    async def read(self, batch: Sequence[Piece]) -> list[bytes | str]:
        """Return pieces of files of the rank's machine."""
        call = rank_calls.read_pieces(self._folder, [(file.name, number) for file, number in batch])
        return [one if isinstance(one, str) else base64.b64decode(one[0]) for one in await self._ask(call)]

    async def write(self, batch: Sequence[Piece], data: Sequence[bytes]) -> list[str | None]:
        """Write pieces. Raises TransferError if they do not arrive."""
        parts = [
            (file.part, number, len(one), file.digests[number], file.mode)
            for (file, number), one in zip(batch, data, strict=True)
        ]
        blob = b"".join(data)
        for _ in range(PUSHES):
            await self._push(blob)
            outcomes = await self._ask(rank_calls.write_pieces(self._folder, self._key, self._pushes, parts))
            if outcomes is not None:
                return outcomes
        raise TransferError(
            f"pieces of files did not arrive at rank 0, because the connection broke {PUSHES} times. Repeat the "
            "command: the copy continues where it ended."
        )

    async def finish(self, files: Sequence[File], complete: Sequence[str]) -> list[str | None]:
        """Give files of the rank's machine their names."""
        return await self._ask(rank_calls.finish_files(self._folder, [_end_of(file) for file in files], list(complete)))

    async def _push(self, blob: bytes) -> None:
        """Push bytes to the rank."""
        self._pushes += 1
        key = pieces.push_key(self._key, self._pushes)
        for start in range(0, max(len(blob), 1), PUSH_BYTES):
            await self._group.kernels[0].push(PUSH_TARGET, {"key": key}, blob[start : start + PUSH_BYTES])

    async def _ask(self, call: RankCall[T]) -> T:
        """Make a call on rank 0. Raises TransferError if it fails."""
        kernels = self._group.kernels[:1]
        while True:
            await kernels[0].reachable()
            try:
                [answer] = await self._group.control(
                    call, what="copying a folder", timeout=CALL_SECONDS, kernels=kernels, repeat=True
                )
            except RankDiedError:
                raise
            except RankError as exc:
                raise TransferError(str(exc)) from exc
            except DeadlineError:
                # The time without a network does not count.
                if kernels[0].connected:
                    raise
            else:
                return answer


def wanted(span: Span, parts: bool) -> tuple[str, int, list[str], int | None]:
    """Return the arguments of `pieces.differing` for a file, or for what was received of it."""
    file, first, most = span
    digests = file.digests[first : first + most]
    return (file.part, first, digests, None) if parts else (file.name, first, digests, file.size)


def _end_of(file: File) -> tuple[str, str, int, int]:
    """Return the arguments of `pieces.finish`."""
    return file.part, file.name, file.size, file.mode
