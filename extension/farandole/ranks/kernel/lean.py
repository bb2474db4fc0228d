"""What a rank's kernel need not do: half of what a short cell costs it.

Both changes are made to this process's objects of ipykernel (7.4); where another version lacks what they look at, it
works as ever.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from IPython.core.getipython import get_ipython


def make_lean() -> None:
    """Spare this kernel the echo of its cells' code and the flushing of streams that hold nothing; only once."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None or kernel._publish_execute_input is _publish_nothing:
        return
    # The driver is the only front end, and it has sent the code.
    kernel._publish_execute_input = _publish_nothing
    for stream in (sys.stdout, sys.stderr):
        spare_empty_flushes(stream)


def spare_empty_flushes(stream: Any) -> None:
    """Let `flush` do nothing where nothing was written since the last one.

    The kernel flushes both streams twice a cell, and each time waits for its publishing thread. What a user writes and
    flushes waits for it as ever.
    """
    write, flush, process = stream.write, stream.flush, os.getpid()
    written = True

    def note_and_write(text: str) -> Any:
        nonlocal written
        try:
            return write(text)
        finally:
            # Noted last: another thread's flush in between then leaves one flush too many, not one too few.
            written = True

    def flush_if_written() -> None:
        nonlocal written
        # A forked child has no publishing thread and flushes by itself.
        if written or os.getpid() != process:
            written = False
            flush()

    stream.write, stream.flush = note_and_write, flush_if_written


def _publish_nothing(*_message: object) -> None:
    return None
