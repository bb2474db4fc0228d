"""Copies the last commit to shared memory, where the copy survives the end of the rank's process.

A single fault can end all ranks. For example, a Horovod rank that loses rank 0 may abort. Therefore the first rank on
each worker copies its commits to a file in shared memory. It alternates between two files, so that a kill during a
write leaves the other file intact.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import struct
import time
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import torch

from farandole.protocol import copies_folder, copy_prefix
from farandole.ranks import context
from farandole.ranks.state.nested import split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from farandole.ranks.state.state import State

HEADER = struct.Struct("<8sqqqI")
"""Header of a copy.

The fields are the magic number, the number of commits, the world size that the learning rate is scaled for (0 if
unknown), and the length and the CRC-32 of the payload.
"""
MAGIC = b"FDCOMMIT"
MAX_TIME_SHARE = 0.05
"""Maximum fraction of the training time that is spent on copies. After a copy that took ``t`` seconds, no copy is made
for ``t / MAX_TIME_SHARE`` seconds."""
ROOM_FACTOR = 4
"""Number of copies that must fit into the folder. Two copies are kept, and DataLoaders also need shared memory."""


class MemoryCheckpoint:
    """Copies of one run's commits on this machine. If a copy cannot be written, the run continues without copies."""

    def __init__(self, run: str, folder: Path | None = None) -> None:
        self._run = run
        self._folder = folder or copies_folder()
        self._turn = 0
        self._next = 0.0
        self._enabled = bool(run)
        self._locks: dict[Path, int] = {}

    def save(self, state: State, lr_size: int | None) -> None:
        """Copy the last commit if this is the worker's first rank and the time limit and the free memory allow it."""
        self._close_removed()
        begun = time.monotonic()
        if not self._enabled or context.local_rank() != 0 or begun < self._next:
            return
        try:
            if self._has_room(state.last.state):
                self._turn = 1 - self._turn
                self._write(self._path(self._turn), state, lr_size)
            else:
                # Free the memory for other processes on this machine. The next commit tries again.
                self._unlink([self._path(0), self._path(1)])
        except OSError:
            # There is too little memory, or another user owns the file. The run continues without copies.
            self.remove()
        now = time.monotonic()
        self._next = now + (now - begun) / MAX_TIME_SHARE

    def load(self, state: State) -> int | None:
        """Load the newest copy into ``state`` if the copy has more commits.

        Return the world size that the loaded learning rate is scaled for. Return None if it is unknown or if nothing
        was loaded.
        """
        # The headers are read first, because copies may be large and only one copy is needed.
        for commits, path in sorted(self._headers(), reverse=True):
            if commits <= state.commits:
                return None
            if found := _read(path):
                copy: dict[str, Any] = torch.load(io.BytesIO(found[1]), map_location="cpu", weights_only=False)
                copy.pop("rng", None)
                state.load_state_dict(copy)
                state.keep()
                return found[0] or None
        return None

    def remove(self) -> None:
        """Remove all copies of the run from this machine, and make no further copies."""
        self._enabled = False
        self._unlink(self._files())

    def _unlink(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
        self._close_removed()

    def _close_removed(self) -> None:
        """Close files that this or another process has removed, because an open file keeps its memory allocated."""
        for path, fd in list(self._locks.items()):
            if os.fstat(fd).st_nlink == 0:
                os.close(self._locks.pop(path))

    def _path(self, turn: int) -> Path:
        return self._folder / f"{copy_prefix(self._run, context.worker())}{turn}"

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{copy_prefix(self._run)}*")) if self._run else []

    def _has_room(self, copy: Any) -> bool:
        """Return whether `ROOM_FACTOR` copies fit into the free space plus this rank's own files. May raise OSError."""
        tensors: dict[str, torch.Tensor] = {}
        split(copy, tensors)
        size = sum(tensor.nbytes for tensor in tensors.values())
        space = os.statvfs(self._folder)
        own = sum(path.stat().st_size for path in (self._path(0), self._path(1)) if path.exists())
        return space.f_bavail * space.f_frsize + own >= ROOM_FACTOR * size

    def _write(self, path: Path, state: State, lr_size: int | None) -> None:
        # The file is overwritten in place, so only the first write has to allocate memory.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise PermissionError(f"{path} belongs to another user")
            self._lock(path, file)
            file.write(bytes(HEADER.size))
            payload = ChecksumWriter(file)
            torch.save(state.last.state, cast("IO[bytes]", payload))
            payload.raise_error()
            file.truncate()
            file.flush()
            file.seek(0)
            # The header is written last, so that a file with a valid header always has a complete payload.
            file.write(HEADER.pack(MAGIC, state.commits, lr_size or 0, payload.length, payload.checksum))

    def _lock(self, path: Path, file: IO[bytes]) -> None:
        """Lock the file until this process ends, so that workers do not delete the copy as stale."""
        fcntl.flock(file, fcntl.LOCK_SH)
        if (before := self._locks.pop(path, None)) is not None:
            os.close(before)
        self._locks[path] = os.dup(file.fileno())

    def _headers(self) -> Iterator[tuple[int, Path]]:
        """Yield the number of commits and the path of each copy that this user owns and that has a header."""
        for path in self._files():
            with contextlib.suppress(OSError), _open_own(path) as file:
                header = _read_header(file)
                if header is not None:
                    yield header[1], path


class ChecksumWriter:
    """File object for torch.save that computes the length and the checksum of the written data."""

    def __init__(self, file: IO[bytes]) -> None:
        self.length = self.checksum = 0
        self._file = file
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write ``data``. After an error, write nothing more and keep the error, because torch would hide it."""
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as exc:
                self._error = exc
        self.length += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return len(data)

    def flush(self) -> None:
        """Do nothing, because the file is flushed before the header is written."""

    def raise_error(self) -> None:
        """Raise the OSError of the write that failed, if any."""
        if self._error is not None:
            raise self._error


def _open_own(path: Path) -> IO[bytes]:
    """Open a copy for reading. Raise OSError if another user owns the file, because copies are unpickled."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
    if os.fstat(file.fileno()).st_uid != os.geteuid():
        file.close()
        raise PermissionError(f"{path} belongs to another user")
    return file


def _read_header(file: IO[bytes]) -> tuple[Any, ...] | None:
    content = file.read(HEADER.size)
    return HEADER.unpack(content) if len(content) == HEADER.size and content.startswith(MAGIC) else None


def _read(path: Path) -> tuple[int, bytes] | None:
    """Return the world size that the learning rate is scaled for, and the payload; None if the copy is not intact."""
    with contextlib.suppress(OSError), _open_own(path) as file:
        if (header := _read_header(file)) is not None:
            _, _, lr_size, length, checksum = header
            payload = file.read()
            if len(payload) == length and zlib.crc32(payload) == checksum:
                return lr_size, payload
    return None
