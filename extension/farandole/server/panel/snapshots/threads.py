"""Runs functions that call restic in threads of their own, and interrupts them when the server ends."""

from __future__ import annotations

import asyncio
import atexit
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar
from weakref import WeakSet

from farandole.snapshots.restic import interrupt

END_SECONDS = 5.0
"""How long the end of the server waits for the threads. Hubs kill a server that takes 10 seconds or longer."""
THREADS: WeakSet[Thread] = WeakSet()

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Start work in a thread, and return the future of its result or of its error.

    The threads of `asyncio.to_thread` are few, so long restores would keep the other work of the server waiting, and
    the server could not end before them.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as exc:  # noqa: BLE001 - the caller gets it from the future
            future.set_exception(exc)

    thread = Thread(target=run, name="farandole-restic", daemon=True)
    THREADS.add(thread)
    thread.start()
    return asyncio.wrap_future(future)


@atexit.register
def _end() -> None:
    """Interrupt the threads, and wait until they have removed what is only restored in part."""
    interrupt(THREADS)
    give_up = time.monotonic() + END_SECONDS
    for thread in list(THREADS):
        thread.join(max(0.0, give_up - time.monotonic()))
