"""Reads what C code and child processes of a rank write, so that all of it belongs to the cell that caused it.

ipykernel 7.4 redirects the file descriptors 1 and 2 to pipes, which two threads read. If a thread has read the end of a
cell's output but has not passed it on when the cell ends, that output is lost. Here, each flush of a stream first reads
the pipe, under a lock that the reading thread also takes.
"""

from __future__ import annotations

import codecs
import os
import select
import threading
import time
from contextvars import Context
from typing import Any

MOST_SECONDS = 0.01
"""How long a flush reads at most, in seconds, because a child process in the background may write without end."""
CHUNK_BYTES = 65_536


class DescriptorReader:
    """Passes on what arrives in the pipe of one of the kernel's output streams."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._pipe: int | None = stream._fid
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        # The same thread may take the lock twice, because writing to the stream can flush it.
        self._lock = threading.RLock()

    def take_over(self) -> None:
        """End ipykernel's thread and start one here. Do nothing if the kernel does not redirect the descriptor."""
        if self._pipe is None:
            return
        self._stream._should_watch = False
        # The thread ends as soon as it has read something.
        os.write(self._stream._original_stdstream_fd, b"\0")
        self._stream.watch_fd_thread.join()
        # An empty context assigns the output to the current cell instead of the cell that started the thread.
        threading.Thread(target=Context().run, args=(self._read_on,), name="descriptors", daemon=True).start()

    def drain(self) -> None:
        """Pass on what has arrived in the pipe. Return after `MOST_SECONDS` even if more arrives."""
        give_up = time.monotonic() + MOST_SECONDS
        with self._lock:
            while self._is_readable(0) and time.monotonic() < give_up:
                data = os.read(self._pipe or 0, CHUNK_BYTES)
                self._stream.write(self._decode(data))
                os.write(self._stream._original_stdstream_copy, data)

    def _read_on(self) -> None:
        while self._is_readable(None):
            self.drain()

    def _is_readable(self, timeout: float | None) -> bool:
        return self._pipe is not None and bool(select.select([self._pipe], [], [], timeout)[0])
