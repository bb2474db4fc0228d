"""Copies folders between this machine and the machine of rank 0, for ``%cluster put`` and ``%cluster get``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from farandole.driver.cells.folder_ends import End, File, LocalFolder, Piece, RankFolder, Span, wanted
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.workers.worker import Progress
from farandole.exceptions import DeadlineError, RankError, TransferError, UsageError
from farandole.files import pieces
from farandole.files.pieces import Content
from farandole.sizes import share_text, size_text

PAGE_FILES = 1000
PAGE_PIECES = 500
"""At most this many files, or a little more than this many pieces, are compared in a call."""
PROGRESS_SECONDS = 5.0
LOOK_SECONDS = 60.0
"""Timeout for finding out which workers see a copy."""
NAMED_FILES = 5


@dataclass(kw_only=True)
class Copied:
    """The result of a copy: the numbers of files and bytes of the folder, and how much of it had to be sent.

    - ``left_out`` is the number of links and special files, which are not copied.
    - ``elsewhere`` names the workers that do not see the copy, because they have other disks.
    """

    files: int = 0
    size: int = 0
    sent_files: int = 0
    sent: int = 0
    left_out: int = 0
    elsewhere: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{_number(self.files)}, {size_text(self.size)}: "
        text += f"{_number(self.sent_files)}, {size_text(self.sent)} sent" if self.sent_files else "already there"
        if not self.files:
            text = "the folder has no files"
        if self.left_out:
            text += f"; links and special files left out: {self.left_out}"
        if self.elsewhere:
            text += (
                f". The copy is on the machine of rank 0, and {', '.join(self.elsewhere)} do not see it: use `--to "
                "FOLDER` with a folder that all workers share, or load the data in a cell on each of them"
            )
        return text


class FolderCopy:
    """A copy of a folder to or from rank 0. It continues a copy of the same folder that was cut.

    Files whose digests agree are not sent. Files that only the receiver has are left alone. A file that cannot be read
    or written, or that changes, does not end the copy.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._copied = Copied()
        self._failed: dict[str, str] = {}
        self._files: list[File] = []
        self._compared = 0
        self._shown = time.monotonic()

    async def put(self, group: RankGroup, source: Path, target: str) -> Copied:
        """Copy a folder of this machine to ``target``, a path that is relative to the home of the workers.

        Raises:
            TransferError: a file could not be copied, or the folder cannot be read. The other files are complete.
        """
        copied = await self._copy(LocalFolder(source), RankFolder(group, target))
        copied.elsewhere = await self._unseen(group, target)
        return copied

    async def get(self, group: RankGroup, source: str, target: Path) -> Copied:
        """Copy ``source``, a path that is relative to the home of the workers, to a folder of this machine.

        Raises:
            TransferError: a file could not be copied, or the folder cannot be read. The other files are complete.
        """
        return await self._copy(RankFolder(group, source), LocalFolder(target))

    def show(self) -> None:
        """Show the progress, at most every few seconds. The caller's thread decides in which cell it appears."""
        if time.monotonic() - self._shown > PROGRESS_SECONDS:
            self._shown = time.monotonic()
            copied = self._copied
            compared = f"compared {share_text(self._compared, copied.size)}, copied {size_text(copied.sent)}"
            self._progress(compared if copied.files else "listing the files")

    async def _copy(self, source: End, target: End) -> Copied:
        listed = await source.listing()
        self._files = files = [File(name=name, size=size) for name, size in listed if size is not None]
        self._copied = Copied(
            files=len(files), size=sum(file.size for file in files), left_out=len(listed) - len(files)
        )
        for page in _pages(files):
            described = await self._described(page, source)
            lacking = await self._incomplete(described, target)
            self._copied.sent_files += len(lacking)
            for batch in _batches(lacking):
                await self._send(batch, source, target)
            await self._finish(described, lacking, target)
        if self._failed:
            raise TransferError(self._failures())
        return self._copied

    async def _finish(self, page: Sequence[File], sent: Sequence[File], target: End) -> None:
        """Give the files that were sent their names. Another copy may have written to them at the same time."""
        lacking = await self._incomplete([file for file in sent if file.name not in self._failed], target)
        self._note(lacking, [pieces.CROSSED if file.missing else None for file in lacking])
        whole = [file for file in lacking if not file.missing]
        complete = [file.name for file in page if file.name not in self._failed]
        self._note(whole, await target.finish(whole, complete))

    async def _unseen(self, group: RankGroup, target: str) -> tuple[str, ...]:
        """Return the names of the workers that do not see the last file of a copy."""
        first = {kernel.worker.name: kernel for kernel in reversed(group.kernels)}
        others = [kernel for kernel in first.values() if kernel.worker.name != group.kernels[0].worker.name]
        found: list[list[list[int] | str | None]] = []
        if others and self._files:
            call = rank_calls.differing_pieces(target, [wanted((self._files[-1], 0, 1), parts=False)])
            # The copy is complete, so a worker that cannot answer is no error.
            with suppress(RankError, DeadlineError):
                found = await group.control(call, what="looking for files", timeout=LOOK_SECONDS, kernels=others)
        return tuple(kernel.worker.name for kernel, [answer] in zip(others, found, strict=False) if answer is not None)

    async def _described(self, page: Sequence[File], source: End) -> list[File]:
        """Read the sizes, permissions and digests of files. Return the files for which this was possible."""
        for spans in _spans(page):
            found = await source.contents(spans)
            self._note([file for file, _, _ in spans], found)
            for (file, first, _), content in zip(spans, found, strict=True):
                if isinstance(content, Content):
                    if first == 0:
                        file.size, file.mode = content.size, content.mode
                    file.digests += content.digests
            self._compared += sum(map(_bytes_of, spans))
        for file in page:
            # The other end may be damaged or hostile, and a file may grow.
            if file.name not in self._failed and len(file.digests) != pieces.count(file.size):
                self._failed[file.name] = "it changed while it was copied"
        return [file for file in page if file.name not in self._failed]

    async def _incomplete(self, page: Sequence[File], target: End) -> list[File]:
        """Return the files that the target does not have, after noting which pieces are missing."""
        differ = await self._differing(page, target, parts=False)
        lacking = [file for file in page if file.name in differ]
        missing = await self._differing(lacking, target, parts=True)
        for file in lacking:
            file.missing = missing.get(file.name, [])
        return [file for file in lacking if file.name not in self._failed]

    async def _differing(self, files: Sequence[File], target: End, *, parts: bool) -> dict[str, list[int]]:
        """Return the numbers of the missing pieces of the files that are not complete, by their names."""
        found: dict[str, list[int]] = {}
        for spans in _spans(files):
            answers = await target.differing(spans, parts=parts)
            self._note([file for file, _, _ in spans], answers)
            for (file, _, _), numbers in zip(spans, answers, strict=True):
                if isinstance(numbers, list):
                    found.setdefault(file.name, []).extend(numbers)
        return found

    async def _send(self, pending: Sequence[Piece], source: End, target: End) -> None:
        # If a piece of a large file cannot be written, the others are not sent.
        batch = [(file, number) for file, number in pending if file.name not in self._failed]
        found = await source.read(batch)
        self._note([file for file, _ in batch], found)
        read = {piece: data for piece, data in zip(batch, found, strict=True) if isinstance(data, bytes)}
        if read:
            self._note([file for file, _ in read], await target.write(list(read), list(read.values())))
            self._copied.sent += sum(map(len, read.values()))

    def _note(self, files: Sequence[File], outcomes: Sequence[object]) -> None:
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


def here(folder: str | Path) -> Path:
    """Return the path of a folder of this machine. Raises UsageError if it is in the home of an unknown user."""
    try:
        return Path(folder).expanduser().absolute()
    except RuntimeError as exc:
        raise UsageError(f"{str(folder)!r} is in the home of a user that this machine does not know") from exc


def own_name(name: str, place: str) -> str:
    """Return the name of a copied folder, for its copy. ``place`` is where the copy is made.

    Raises:
        UsageError: the folder is a home, a root or a relative path, so that its copy could replace any file there.
    """
    if not name or name == ".." or name.startswith("~"):
        raise UsageError(f"the folder has no name of its own; name the one {place} with `--to FOLDER`")
    return name


def _number(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _pages(files: Sequence[File]) -> Iterator[list[File]]:
    """Split the files into pages that are compared together."""
    page: list[File] = []
    count = 0
    for file in files:
        page.append(file)
        count += pieces.count(file.size)
        if len(page) == PAGE_FILES or count >= PAGE_PIECES:
            yield page
            page, count = [], 0
    if page:
        yield page


def _spans(files: Sequence[File]) -> Iterator[list[Span]]:
    """Yield the files with all of their pieces. A file with many pieces is split, and is alone in each call."""
    small = [file for file in files if pieces.count(file.size) <= PAGE_PIECES]
    if small:
        yield [(file, 0, PAGE_PIECES) for file in small]
    for file in files:
        if pieces.count(file.size) > PAGE_PIECES:
            for first in range(0, pieces.count(file.size), PAGE_PIECES):
                yield [(file, first, PAGE_PIECES)]


def _bytes_of(span: Span) -> int:
    """Return the number of bytes of the pieces of a file."""
    file, first, most = span
    return max(0, min(file.size - first * pieces.PIECE_BYTES, most * pieces.PIECE_BYTES))


def _batches(files: Sequence[File]) -> Iterator[list[Piece]]:
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
