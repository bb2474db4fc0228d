"""Copies folders between this machine and the machine of rank 0, for ``%cluster put`` and ``%cluster get``."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.loop import in_thread
from farandole.driver.workers.worker import Progress
from farandole.exceptions import RankDiedError, RankError, TransferError, UsageError
from farandole.files import pieces
from farandole.files.pieces import Content
from farandole.protocol import PUSH_TARGET
from farandole.reading import reason
from farandole.sizes import share_text, size_text

CALL_SECONDS = 600.0
"""Timeout of a call. A rank computes the digests of up to `PAGE_PIECES` pieces in a call."""
PAGE_FILES = 1000
PAGE_PIECES = 500
"""At most this many files, or a little more than this many pieces, are compared in a call."""
LISTED_FILES = 20_000
PROGRESS_SECONDS = 5.0
NAMED_FILES = 5

T = TypeVar("T")
Piece: TypeAlias = "tuple[_File, int]"
"""A file and the number of one of its pieces."""
Span: TypeAlias = "tuple[_File, int, int]"
"""A file, the number of one of its pieces, and the largest number of pieces from there on."""


@dataclass(kw_only=True)
class Copied:
    """The result of a copy: the numbers of files and bytes of the folder, and how much of it had to be sent."""

    files: int = 0
    size: int = 0
    sent_files: int = 0
    sent: int = 0

    def __str__(self) -> str:
        if not self.sent_files:
            return f"{self.files} files, {size_text(self.size)}: already there"
        return f"{self.files} files, {size_text(self.size)}: {self.sent_files} files, {size_text(self.sent)} sent"


@dataclass(eq=False, kw_only=True)
class _File:
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


class _End(Protocol):
    """One end of a copy. In each list that a method returns, a text is the reason why a file has no result."""

    async def listing(self) -> list[_File]:
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

    async def finish(self, files: Sequence[_File]) -> Sequence[str | None]:
        """Give files that were received completely their names."""


class _Here:
    """A folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def listing(self) -> list[_File]:
        """Return the files. Raises TransferError if the folder cannot be read."""
        listed = await _attempt(lambda: [_File(name=name, size=size) for name, size in pieces.names(self._folder)])
        if isinstance(listed, str):
            raise TransferError(f"the folder on this machine: {listed}.")
        return listed

    async def contents(self, spans: Sequence[Span]) -> list[Content | str]:
        return [
            await _attempt(partial(pieces.content, self._folder, file.name, first, most)) for file, first, most in spans
        ]

    async def differing(self, spans: Sequence[Span], *, parts: bool) -> list[list[int] | str | None]:
        """Return the missing pieces. Raises TransferError if something else is in the place of the folder."""
        if self._folder.exists() and not self._folder.is_dir():
            raise TransferError(f"{str(self._folder)!r} on this machine is not a folder.")
        return [await _attempt(partial(pieces.differing, self._folder, *_wanted(span, parts))) for span in spans]

    async def read(self, batch: Sequence[Piece]) -> list[bytes | str]:
        return [await _attempt(partial(pieces.read, self._folder, file.name, number)) for file, number in batch]

    async def write(self, batch: Sequence[Piece], data: Sequence[bytes]) -> list[str | None]:
        return [
            await _attempt(
                partial(pieces.write, self._folder, file.part, number, one, file.digests[number], mode=file.mode)
            )
            for (file, number), one in zip(batch, data, strict=True)
        ]

    async def finish(self, files: Sequence[_File]) -> list[str | None]:
        return [
            await _attempt(partial(pieces.finish, self._folder, file.part, file.name, file.size, file.mode))
            for file in files
        ]


class _There:
    """A folder of rank 0's machine. A relative path is relative to the home of the workers."""

    def __init__(self, group: RankGroup, folder: str) -> None:
        self._group = group
        self._folder = folder

    async def listing(self) -> list[_File]:
        key, listed = uuid.uuid4().hex, []
        while found := await self._ask(rank_calls.file_names(self._folder, key, LISTED_FILES)):
            listed += [_File(name=name, size=size) for name, size in found]
        return listed

    async def contents(self, spans: Sequence[Span]) -> list[Content | str]:
        wanted = [(file.name, first, most) for file, first, most in spans]
        return [
            one if isinstance(one, str) else Content(size=one[0], mode=one[1], digests=one[2])
            for one in await self._ask(rank_calls.file_contents(self._folder, wanted))
        ]

    async def differing(self, spans: Sequence[Span], *, parts: bool) -> list[list[int] | str | None]:
        return await self._ask(rank_calls.differing_pieces(self._folder, [_wanted(span, parts) for span in spans]))

    async def read(self, batch: Sequence[Piece]) -> list[bytes | str]:
        call = rank_calls.read_pieces(self._folder, [(file.name, number) for file, number in batch])
        return [one if isinstance(one, str) else base64.b64decode(one[0]) for one in await self._ask(call)]

    async def write(self, batch: Sequence[Piece], data: Sequence[bytes]) -> list[str | None]:
        key = uuid.uuid4().hex
        await self._group.kernels[0].push(PUSH_TARGET, {"key": key}, b"".join(data))
        parts = [
            (file.part, number, len(one), file.digests[number], file.mode)
            for (file, number), one in zip(batch, data, strict=True)
        ]
        return await self._ask(rank_calls.write_pieces(self._folder, key, parts))

    async def finish(self, files: Sequence[_File]) -> list[str | None]:
        ends = [(file.part, file.name, file.size, file.mode) for file in files]
        return await self._ask(rank_calls.finish_files(self._folder, ends))

    async def _ask(self, call: RankCall[T]) -> T:
        kernels = self._group.kernels[:1]
        try:
            [answer] = await self._group.control(call, what="copying a folder", timeout=CALL_SECONDS, kernels=kernels)
        except RankDiedError:
            raise
        except RankError as exc:
            raise TransferError(str(exc)) from exc
        return answer


class FolderCopy:
    """A copy of a folder to or from rank 0. It continues a copy of the same folder that was cut.

    Files whose digests agree are not sent. Files that only the receiver has are left alone. A file that cannot be read
    or written, or that changes, does not end the copy.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._copied = Copied()
        self._failed: dict[str, str] = {}
        self._doing = ""
        self._shown = time.monotonic()

    async def put(self, group: RankGroup, source: Path, target: str) -> Copied:
        """Copy a folder of this machine to ``target``, a path that is relative to the home of the workers.

        Raises:
            TransferError: a file could not be copied, or the folder cannot be read. The other files are complete.
        """
        return await self._copy(_Here(source), _There(group, target))

    async def get(self, group: RankGroup, source: str, target: Path) -> Copied:
        """Copy ``source``, a path that is relative to the home of the workers, to a folder of this machine.

        Raises:
            TransferError: a file could not be copied, or the folder cannot be read. The other files are complete.
        """
        return await self._copy(_There(group, source), _Here(target))

    def show(self) -> None:
        """Show the progress, at most every few seconds. The caller's thread decides in which cell it appears."""
        if self._doing and time.monotonic() - self._shown > PROGRESS_SECONDS:
            self._shown = time.monotonic()
            self._progress(self._doing)

    async def _copy(self, source: _End, target: _End) -> Copied:
        self._doing = "listing the files"
        listed = await source.listing()
        self._copied = Copied(files=len(listed), size=sum(file.size for file in listed))
        compared = 0
        for page in _pages(listed):
            self._doing = f"compared {share_text(compared, self._copied.size)}, copied {size_text(self._copied.sent)}"
            compared += sum(file.size for file in page)
            wanted = await self._incomplete(await self._described(page, source), target)
            self._copied.sent_files += len(wanted)
            for batch in _batches(wanted):
                await self._send(batch, source, target)
            complete = [file for file in wanted if file.name not in self._failed]
            self._note(complete, await target.finish(complete))
        if self._failed:
            raise TransferError(self._failures())
        return self._copied

    async def _described(self, page: Sequence[_File], source: _End) -> list[_File]:
        """Read the sizes, permissions and digests of files. Return the files for which this was possible."""
        for spans in _spans(page):
            found = await source.contents(spans)
            self._note([file for file, _, _ in spans], found)
            for (file, first, _), content in zip(spans, found, strict=True):
                if isinstance(content, Content):
                    if first == 0:
                        file.size, file.mode = content.size, content.mode
                    file.digests += content.digests
        for file in page:
            # The other end may be damaged or hostile, and a file may grow.
            if file.name not in self._failed and len(file.digests) != pieces.count(file.size):
                self._failed[file.name] = "it changed while it was copied"
        return [file for file in page if file.name not in self._failed]

    async def _incomplete(self, page: Sequence[_File], target: _End) -> list[_File]:
        """Return the files that the target does not have, after noting which pieces are missing."""
        differ = await self._differing(page, target, parts=False)
        wanted = [file for file in page if file.name in differ]
        missing = await self._differing(wanted, target, parts=True)
        for file in wanted:
            file.missing = missing.get(file.name, [])
        return [file for file in wanted if file.name not in self._failed]

    async def _differing(self, files: Sequence[_File], target: _End, *, parts: bool) -> dict[str, list[int]]:
        """Return the numbers of the missing pieces of the files that are not complete, by their names."""
        found: dict[str, list[int]] = {}
        for spans in _spans(files):
            answers = await target.differing(spans, parts=parts)
            self._note([file for file, _, _ in spans], answers)
            for (file, _, _), numbers in zip(spans, answers, strict=True):
                if isinstance(numbers, list):
                    found.setdefault(file.name, []).extend(numbers)
        return found

    async def _send(self, batch: Sequence[Piece], source: _End, target: _End) -> None:
        found = await source.read(batch)
        self._note([file for file, _ in batch], found)
        read = {piece: data for piece, data in zip(batch, found, strict=True) if isinstance(data, bytes)}
        if read:
            self._note([file for file, _ in read], await target.write(list(read), list(read.values())))
            self._copied.sent += sum(map(len, read.values()))

    def _note(self, files: Sequence[_File], outcomes: Sequence[object]) -> None:
        """Note the files that have a reason for a failure in place of a result."""
        for file, outcome in zip(files, outcomes, strict=True):
            if isinstance(outcome, str):
                self._failed.setdefault(file.name, outcome)

    def _failures(self) -> str:
        named = [f"{name!r} ({why})" for name, why in islice(self._failed.items(), NAMED_FILES)]
        more = f" and {len(self._failed) - NAMED_FILES} more" if len(self._failed) > NAMED_FILES else ""
        return (
            f"{len(self._failed)} of {self._copied.files} files could not be copied: {', '.join(named)}{more}. The "
            "others are complete; repeat the command to copy the rest."
        )


def own_name(name: str, place: str) -> str:
    """Return the name of a copied folder, for its copy. ``place`` is where the copy is made.

    Raises:
        UsageError: the folder is a home, a root or a relative path, so that its copy could replace any file there.
    """
    if not name or name == ".." or name.startswith("~"):
        raise UsageError(f"the folder has no name of its own; name the one {place} with `--to FOLDER`")
    return name


async def _attempt(work: Callable[[], T]) -> T | str:
    """Run work on this machine's files in a thread. Return its result, or the reason why it failed."""
    try:
        return await in_thread(work)
    except (OSError, ValueError) as exc:
        return reason(exc)


def _wanted(span: Span, parts: bool) -> tuple[str, int, list[str], int | None]:
    """Return the arguments of `pieces.differing` for a file, or for what was received of it."""
    file, first, most = span
    digests = file.digests[first : first + most]
    return (file.part, first, digests, None) if parts else (file.name, first, digests, file.size)


def _pages(files: Sequence[_File]) -> Iterator[list[_File]]:
    """Split the files into pages that are compared together."""
    page: list[_File] = []
    count = 0
    for file in files:
        page.append(file)
        count += pieces.count(file.size)
        if len(page) == PAGE_FILES or count >= PAGE_PIECES:
            yield page
            page, count = [], 0
    if page:
        yield page


def _spans(files: Sequence[_File]) -> Iterator[list[Span]]:
    """Yield the files with all of their pieces. A file with many pieces is split, and is alone in each call."""
    small = [file for file in files if pieces.count(file.size) <= PAGE_PIECES]
    if small:
        yield [(file, 0, PAGE_PIECES) for file in small]
    for file in files:
        if pieces.count(file.size) > PAGE_PIECES:
            for first in range(0, pieces.count(file.size), PAGE_PIECES):
                yield [(file, first, PAGE_PIECES)]


def _batches(files: Sequence[_File]) -> Iterator[list[Piece]]:
    """Split the missing pieces of files into batches that fit into one message."""
    batch: list[Piece] = []
    size = 0
    for file in files:
        for number in file.missing:
            length = file.length(number)
            if batch and size + length > pieces.PIECE_BYTES:
                yield batch
                batch, size = [], 0
            batch.append((file, number))
            size += length
    if batch:
        yield batch
