"""Copies folders between this machine and the machine of rank 0, for ``%cluster put`` and ``%cluster get``."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.loop import in_thread
from farandole.driver.workers.worker import Progress
from farandole.exceptions import RankDiedError, RankError, TransferError
from farandole.files import pieces
from farandole.protocol import PUSH_TARGET
from farandole.reading import reason
from farandole.sizes import share_text, size_text

CALL_SECONDS = 600.0
"""Timeout of a call. A rank computes the digests of up to `PAGE_BYTES` in a call."""
PAGE_FILES = 1000
PAGE_BYTES = 4 * 2**30
"""At most this many files, or a little more than this many bytes, are compared in a call."""
LISTED_FILES = 20_000
PROGRESS_SECONDS = 5.0

T = TypeVar("T")


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


@dataclass(kw_only=True)
class _File:
    """A file of the folder that is copied. ``missing`` lists the pieces that the receiver lacks."""

    name: str
    size: int
    digests: list[str] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)

    @property
    def end(self) -> tuple[str, int, list[str]]:
        return self.name, self.size, self.digests


class FolderCopy:
    """A copy of a folder to or from rank 0. It continues a copy of the same folder that was cut.

    Files whose digests agree are not sent. Files that only the receiver has are left alone.
    """

    def __init__(self, group: RankGroup, progress: Progress) -> None:
        self._group = group
        self._progress = progress
        self._copied = Copied()
        self._shown = time.monotonic()

    async def put(self, source: Path, target: str) -> Copied:
        """Copy a folder of this machine to ``target``, a path that is relative to the home of the workers.

        Raises:
            TransferError: a file cannot be read or written, or changes during the copy.
        """
        listed = await _local(lambda: [_File(name=name, size=size) for name, size in pieces.names(source)])
        self._count(listed)
        for page in _pages(listed):
            for file in page:
                file.digests = await _local(partial(pieces.digests, source, file.name))
            found = await self._ask(rank_calls.missing_pieces(target, [(file.name, file.digests) for file in page]))
            wanted = self._wanted(page, found)
            for batch in _batches(wanted):
                data = [await _local(partial(pieces.read, source, file.name, number)) for file, number in batch]
                key = uuid.uuid4().hex
                await self._group.kernels[0].push(PUSH_TARGET, {"key": key}, b"".join(data))
                parts = [
                    (file.name, number, len(piece), file.digests[number])
                    for (file, number), piece in zip(batch, data, strict=True)
                ]
                await self._ask(rank_calls.write_pieces(target, key, parts))
                self._report(sum(map(len, data)))
            await self._ask(rank_calls.finish_files(target, [file.end for file in wanted]))
        return self._copied

    async def get(self, source: str, target: Path) -> Copied:
        """Copy ``source``, a path that is relative to the home of the workers, to a folder of this machine.

        Raises:
            TransferError: a file cannot be read or written, or changes during the copy.
        """
        listed: list[_File] = []
        while found := await self._ask(rank_calls.file_names(source, len(listed), LISTED_FILES)):
            listed += [_File(name=name, size=size) for name, size in found]
        self._count(listed)
        for page in _pages(listed):
            digests = await self._ask(rank_calls.file_digests(source, [file.name for file in page]))
            for file, each in zip(page, digests, strict=True):
                file.digests = each
            wanted = self._wanted(
                page, [await _local(partial(pieces.missing, target, file.name, file.digests)) for file in page]
            )
            for batch in _batches(wanted):
                call = rank_calls.read_pieces(source, [(file.name, number) for file, number in batch])
                encoded = await self._ask(call)
                rest = memoryview(base64.b64decode(encoded))
                self._report(len(rest))
                for file, number in batch:
                    piece, rest = rest[: _length(file, number)], rest[_length(file, number) :]
                    wanted_digest = file.digests[number]
                    await _local(partial(pieces.write, target, file.name, number, bytes(piece), wanted_digest))
            for file in wanted:
                await _local(partial(pieces.finish, target, *file.end))
        return self._copied

    def _count(self, listed: Sequence[_File]) -> None:
        self._copied = Copied(files=len(listed), size=sum(file.size for file in listed))

    def _wanted(self, page: Sequence[_File], missing: Sequence[list[int] | None]) -> list[_File]:
        """Return the files that are not complete, and note which of their pieces are missing."""
        wanted = []
        for file, numbers in zip(page, missing, strict=True):
            if numbers is not None:
                file.missing = numbers
                wanted.append(file)
        self._copied.sent_files += len(wanted)
        return wanted

    def _report(self, count: int) -> None:
        self._copied.sent += count
        if time.monotonic() - self._shown > PROGRESS_SECONDS:
            self._shown = time.monotonic()
            self._progress(f"sent {share_text(self._copied.sent, self._copied.size)}")

    async def _ask(self, call: RankCall[T]) -> T:
        kernels = self._group.kernels[:1]
        try:
            [answer] = await self._group.control(call, what="copying a folder", timeout=CALL_SECONDS, kernels=kernels)
        except RankDiedError:
            raise
        except RankError as exc:
            raise TransferError(str(exc)) from exc
        return answer


async def _local(work: Callable[[], T]) -> T:
    """Run work on this machine's files in a thread. Raises TransferError if it fails."""
    try:
        return await in_thread(work)
    except (OSError, ValueError) as exc:
        raise TransferError(f"the folder on this machine: {reason(exc)}.") from exc


def _pages(files: Sequence[_File]) -> Iterator[list[_File]]:
    """Split the files into pages that are compared in one call."""
    page: list[_File] = []
    size = 0
    for file in files:
        page.append(file)
        size += file.size
        if len(page) == PAGE_FILES or size >= PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _batches(files: Sequence[_File]) -> Iterator[list[tuple[_File, int]]]:
    """Split the missing pieces of files into batches that fit into one message."""
    batch: list[tuple[_File, int]] = []
    size = 0
    for file in files:
        for number in file.missing:
            length = _length(file, number)
            if batch and size + length > pieces.PIECE_BYTES:
                yield batch
                batch, size = [], 0
            batch.append((file, number))
            size += length
    if batch:
        yield batch


def _length(file: _File, number: int) -> int:
    """Return the number of bytes of a piece."""
    return min(pieces.PIECE_BYTES, file.size - number * pieces.PIECE_BYTES)
