"""Runs the driver's event loop in a thread, so that output still streams while a cell blocks the kernel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

PUMP_SECONDS = 0.1

T = TypeVar("T")


class LoopThread:
    """One asyncio loop in one daemon thread; `call` is the only bridge from synchronous code."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="farandole-driver", daemon=True)
        self._thread.start()

    def call(
        self,
        work: Coroutine[Any, Any, T],
        *,
        on_interrupt: Callable[[], Awaitable[None]] | None = None,
        pump: Callable[[], None] | None = None,
        wake: threading.Event | None = None,
    ) -> T:
        """Run a coroutine on the loop and return its result; meanwhile call `pump` in this thread ten times a second.

        - `pump` is also called as soon as `wake` is set.
        - The pump shows output: IPython attributes what a thread prints to the cell that started that thread.
        - After a KeyboardInterrupt or an error of the pump, `on_interrupt` is awaited on the loop first. Then the work
          is cancelled, its cleanup awaited, and the error raised again.
        """
        tasks: list[asyncio.Task[Any]] = []
        try:
            return _wait(asyncio.run_coroutine_threadsafe(_noted(work, tasks), self.loop), pump, wake)
        except BaseException as exc:
            # If the work has failed, it has ended already; if the pump has failed, the work would continue.
            if isinstance(exc, KeyboardInterrupt) or not all(task.done() for task in tasks):
                asyncio.run_coroutine_threadsafe(_ended(tasks, on_interrupt), self.loop).result()
            raise

    def close(self) -> None:
        """Stop the loop and join its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def _wait(future: Future[T], pump: Callable[[], None] | None, wake: threading.Event | None) -> T:
    if pump is None:
        return future.result()
    wake = wake or threading.Event()
    future.add_done_callback(lambda _: wake.set())
    try:
        while not future.done():
            wake.wait(PUMP_SECONDS)
            wake.clear()
            pump()
        return future.result()
    finally:
        pump()


class Errand:
    """Lets the work make a call in the thread that waits in `LoopThread.call`: give `pump` and `wake` to `call`."""

    def __init__(self) -> None:
        self.wake = threading.Event()
        self._call: Callable[[], None] | None = None

    async def run(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the other thread and return when it is done; if it raises, the work is cancelled."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def call_and_tell() -> None:
            call()
            loop.call_soon_threadsafe(done.set)

        self._call = call_and_tell
        self.wake.set()
        await done.wait()

    def pump(self) -> None:
        """Make the call, if one is due."""
        if self._call is not None:
            call, self._call = self._call, None
            call()


async def _noted(work: Coroutine[Any, Any, T], tasks: list[asyncio.Task[Any]]) -> T:
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    return await work


async def _ended(tasks: list[asyncio.Task[Any]], first: Callable[[], Awaitable[None]] | None) -> None:
    try:
        if first is not None:
            await first()
    finally:
        for task in tasks:
            task.cancel()
            await asyncio.wait([task])


async def in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread. A cancellation waits until the work is done, because a thread cannot be stopped."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def all_or_first_error(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Gather results. If one coroutine fails, cancel and await the others, so that no task outlives the call."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
