"""Delays interrupts while a rank forms or leaves its world.

Python may raise KeyboardInterrupt when it calls the ``__exit__`` of a context manager, before its first line.
The lock of the world would then stay locked, and every later cell would fail.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Raise an interrupt that arrives during the block after the block has ended.

    If the block raises an exception, the interrupt is dropped, because the cell ends anyway. Signals reach only the
    main thread, so nothing happens in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[FrameType | None] = []
    handler = signal.signal(signal.SIGINT, lambda _, frame: arrived.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if arrived and callable(handler):
        handler(signal.SIGINT, arrived[0])
