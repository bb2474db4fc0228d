"""The last commit where it outlives this process: in shared memory of the worker's machine.

One fault may take all ranks along: under Horovod, a rank that loses rank 0 can abort. The first rank of each machine
therefore keeps a copy in a file; two files take turns, so that a kill in the middle of one leaves the other whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from farandole.ranks import context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from farandole.ranks.state import State

SHARED_MEMORY = Path("/dev/shm")
HEADER = struct.Struct("<8sqqqI")
"""Mark, commits, size that the learning rate is meant for (0: none), bytes of the copy and their CRC-32."""
MARK = b"FDCOMMIT"
OLD_SECONDS = 86_400.0
SHARE = 0.05
"""The most of the training's time that copies may take; a commit that comes sooner is left out."""


class Keepsake:
    """Copies of one run's commits on this machine; where they cannot be written there are none."""

    def __init__(self, run: str, folder: Path | None = None) -> None:
        self._run = run
        self._folder = folder or (SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir()))
        self._turn = 0
        self._next = 0.0
        self._works = bool(run)
        self._sweep()

    def keep(self, state: State, lr_size: int | None) -> None:
        """Copy the last commit, where this is the machine's first rank and the last copy is long enough ago."""
        begun = time.monotonic()
        if not self._works or context.local_rank() != 0 or begun < self._next:
            return
        buffer = io.BytesIO()
        torch.save(state.last.state, buffer)
        self._turn = 1 - self._turn
        try:
            self._write(self._folder / f"{self._prefix}{context.worker()}-{self._turn}", buffer, state.commits, lr_size)
        except OSError:
            # Memory is short, or the place is somebody else's. The run goes on as it would have without copies.
            self.remove()
        now = time.monotonic()
        self._next = now + (now - begun) / SHARE

    def load(self, state: State) -> int | None:
        """Give a state that has fewer commits the newest copy; return the size that its learning rate is meant for."""
        found = max(self._copies(), key=lambda copy: copy[0], default=None)
        if found is None or found[0] <= state.commits:
            return None
        _, lr_size, payload = found
        copy: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=False)
        copy.pop("rng", None)
        state.load_state_dict(copy)
        state.keep()
        return lr_size or None

    def remove(self) -> None:
        """Remove all copies of the run on this machine, and make no more."""
        self._works = False
        for path in self._files():
            with contextlib.suppress(OSError):
                path.unlink()

    def _sweep(self) -> None:
        """Remove old copies of ours, of runs whose ranks were all killed at the end."""
        for path in self._folder.glob("farandole-*"):
            with contextlib.suppress(OSError):
                found = path.lstat()
                if found.st_uid == os.geteuid() and time.time() - found.st_mtime > OLD_SECONDS:
                    path.unlink()

    @property
    def _prefix(self) -> str:
        return f"farandole-{self._run}-"

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"{self._prefix}*")) if self._run else []

    def _write(self, path: Path, buffer: io.BytesIO, commits: int, lr_size: int | None) -> None:
        payload = buffer.getbuffer()
        # The file is written over: its memory is there already the second time.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise PermissionError(f"{path} belongs to another user")
            file.write(bytes(HEADER.size))
            file.write(payload)
            file.truncate()
            file.flush()
            file.seek(0)
            # Last: whoever finds a header finds the whole copy.
            file.write(HEADER.pack(MARK, commits, lr_size or 0, len(payload), zlib.crc32(payload)))

    def _copies(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (commits, learning rate's size, copy) of each whole copy of our own."""
        for path in self._files():
            with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                # A copy is unpickled, so it has to be ours.
                if os.fstat(file.fileno()).st_uid == os.geteuid():
                    yield from _checked(file.read())


def _checked(content: bytes) -> Iterator[tuple[int, int, bytes]]:
    if len(content) < HEADER.size:
        return
    mark, commits, lr_size, length, checksum = HEADER.unpack_from(content)
    payload = content[HEADER.size :]
    if mark == MARK and len(payload) == length and zlib.crc32(payload) == checksum:
        yield commits, lr_size, payload
