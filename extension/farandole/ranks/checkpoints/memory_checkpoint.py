"""The last commit where it outlives this process: in shared memory of the worker's machine.

One fault may take all ranks along: under Horovod, a rank that loses rank 0 can abort. The first rank of each machine
therefore keeps a copy in a file; two files take turns, so that a kill in the middle of one leaves the other whole.
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
"""Mark, commits, size that the learning rate is meant for (0: none), bytes of the copy and their CRC-32."""
MARK = b"FDCOMMIT"
SHARE = 0.05
"""The most of the training's time that copies may take; a commit that comes sooner is left out."""
ROOM = 4
"""How many copies must fit into the place: there are two, and the processes of DataLoaders need shared memory too."""


class MemoryCheckpoint:
    """Copies of one run's commits on this machine; where they cannot be written there are none."""

    def __init__(self, run: str, folder: Path | None = None) -> None:
        self._run = run
        self._folder = folder or copies_folder()
        self._turn = 0
        self._next = 0.0
        self._works = bool(run)
        self._locks: dict[Path, int] = {}

    def keep(self, state: State, lr_size: int | None) -> None:
        """Copy the last commit, where this is the machine's first rank and the last copy is long enough ago."""
        self._let_go()
        begun = time.monotonic()
        if not self._works or context.local_rank() != 0 or begun < self._next:
            return
        try:
            if self._has_room(state.last.state):
                self._turn = 1 - self._turn
                self._write(self._place(self._turn), state, lr_size)
            else:
                # Of more use to whoever else is on this machine; tried again.
                self._drop([self._place(0), self._place(1)])
        except OSError:
            # Memory is short, or the place is somebody else's. The run goes on as it would have without copies.
            self.remove()
        now = time.monotonic()
        self._next = now + (now - begun) / SHARE

    def load(self, state: State) -> int | None:
        """Give a state that has fewer commits the newest copy; return the size that its learning rate is meant for."""
        # By their headers first: copies may be large, and only one is wanted.
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
        """Remove all copies of the run on this machine, and make no more."""
        self._works = False
        self._drop(self._files())

    def _drop(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                path.unlink()
        self._let_go()

    def _let_go(self) -> None:
        """Close the copies that were removed, also by others: open, they would hold their memory still."""
        for path, fd in list(self._locks.items()):
            if os.fstat(fd).st_nlink == 0:
                os.close(self._locks.pop(path))

    def _place(self, turn: int) -> Path:
        return self._folder / f"{copy_prefix(self._run, context.worker())}{turn}"

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{copy_prefix(self._run)}*")) if self._run else []

    def _has_room(self, copy: Any) -> bool:
        """Say whether `ROOM` copies fit into what is free and what is ours already. Raises: OSError."""
        tensors: dict[str, torch.Tensor] = {}
        split(copy, tensors)
        size = sum(tensor.nbytes for tensor in tensors.values())
        place = os.statvfs(self._folder)
        own = sum(path.stat().st_size for path in (self._place(0), self._place(1)) if path.exists())
        return place.f_bavail * place.f_frsize + own >= ROOM * size

    def _write(self, path: Path, state: State, lr_size: int | None) -> None:
        # The file is written over: its memory is there already the second time.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise PermissionError(f"{path} belongs to another user")
            self._lock(path, file)
            file.write(bytes(HEADER.size))
            payload = Summed(file)
            torch.save(state.last.state, cast("IO[bytes]", payload))
            payload.check()
            file.truncate()
            file.flush()
            file.seek(0)
            # Last: whoever finds a header finds the whole copy.
            file.write(HEADER.pack(MARK, state.commits, lr_size or 0, payload.length, payload.checksum))

    def _lock(self, path: Path, file: IO[bytes]) -> None:
        """Show that the copy is in use, until this process ends."""
        fcntl.flock(file, fcntl.LOCK_SH)
        if (before := self._locks.pop(path, None)) is not None:
            os.close(before)
        self._locks[path] = os.dup(file.fileno())

    def _headers(self) -> Iterator[tuple[int, Path]]:
        """Yield (commits, path) of each copy of our own that may be whole."""
        for path in self._files():
            with contextlib.suppress(OSError), _ours(path) as file:
                content = file.read(HEADER.size)
                if len(content) == HEADER.size and content.startswith(MARK):
                    yield HEADER.unpack(content)[1], path


class Summed:
    """A file, as torch.save wants it, that knows the length and the checksum of what was written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.length = self.checksum = 0
        self._file = file
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write; nothing more after an error, which torch would turn into another."""
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as exc:
                self._error = exc
        self.length += len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return len(data)

    def flush(self) -> None:
        """Do nothing: the header comes after all else anyway."""

    def check(self) -> None:
        """Raise the OSError that there was."""
        if self._error is not None:
            raise self._error


def _ours(path: Path) -> IO[bytes]:
    """Open a copy to read it. Raises: OSError, also where it is not ours: copies are unpickled."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
    if os.fstat(file.fileno()).st_uid != os.geteuid():
        file.close()
        raise PermissionError(f"{path} belongs to another user")
    return file


def _read(path: Path) -> tuple[int, bytes] | None:
    """Return the learning rate's size and the copy, None where that is not whole."""
    with contextlib.suppress(OSError), _ours(path) as file:
        content = file.read(HEADER.size)
        payload = file.read()
        if len(content) == HEADER.size:
            mark, _, lr_size, length, checksum = HEADER.unpack(content)
            if mark == MARK and len(payload) == length and zlib.crc32(payload) == checksum:
                return lr_size, payload
    return None
