"""Runs the driver's event loop in a thread, so that output is streamed even while a cell blocks the kernel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

PUMP_SECONDS = 0.1

T = TypeVar("T")


class LoopThread:
    """One asyncio loop in a daemon thread. Synchronous code uses the loop only through `call`."""

    def __init__(self, name: str = "farandole-driver") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(
        self,
        work: Coroutine[Any, Any, T],
        *,
        on_interrupt: Callable[[], Awaitable[bool | None]] | None = None,
        pump: Callable[[], None] | None = None,
        wake: threading.Event | None = None,
    ) -> T:
        """Run a coroutine on the loop and return its result. Meanwhile, call `pump` in this thread ten times a second.

        - `pump` is also called as soon as `wake` is set.
        - `pump` shows output, and must run in this thread because IPython attributes printed text to the cell that
          started the printing thread.
        - After a KeyboardInterrupt or an error in `pump`, `on_interrupt` is awaited on the loop first. Then the
          coroutine is cancelled, its cleanup is awaited, and the error is raised again. If `on_interrupt` returns True,
          the coroutine is not cancelled, and the error is raised at once.
        """
        tasks: list[asyncio.Task[Any]] = []
        try:
            return _wait(asyncio.run_coroutine_threadsafe(_noted(work, tasks), self.loop), pump, wake)
        except BaseException as exc:
            # If the coroutine itself failed, its task has ended. If `pump` failed, the coroutine would continue to run.
            if isinstance(exc, KeyboardInterrupt) or not all(task.done() for task in tasks):
                _wait_despite_interrupt(asyncio.run_coroutine_threadsafe(_ended(tasks, on_interrupt), self.loop))
            raise

    def close(self) -> None:
        """Stop the loop and join its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def watched(work: Coroutine[Any, Any, T], watch: Coroutine[Any, Any, None]) -> T:
    """Return the result of ``work``. Until then, run ``watch`` beside it, which does not end by itself."""
    watching = asyncio.create_task(watch)
    try:
        return await work
    finally:
        watching.cancel()


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


def _wait_despite_interrupt(ending: Future[None]) -> None:
    """Wait for the end of the work, also after a second interrupt, because a caller must know whether work is left.

    A third interrupt is raised.
    """
    try:
        ending.result()
    except KeyboardInterrupt:
        ending.result()


class Errand:
    """Lets a coroutine make a call in the thread that is waiting in `LoopThread.call`.

    The thread must pass the `pump` and the `wake` of this object to `LoopThread.call`.
    """

    def __init__(self) -> None:
        self.wake = threading.Event()
        self._call: Callable[[], None] | None = None

    async def run(self, call: Callable[[], None]) -> None:
        """Run ``call`` in the waiting thread, and return when it is done. An error in it cancels the coroutine."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def call_and_tell() -> None:
            call()
            loop.call_soon_threadsafe(done.set)

        self._call = call_and_tell
        self.wake.set()
        await done.wait()

    def pump(self) -> None:
        """Make the requested call, if there is one."""
        if self._call is not None:
            call, self._call = self._call, None
            call()


async def _noted(work: Coroutine[Any, Any, T], tasks: list[asyncio.Task[Any]]) -> T:
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    return await work


async def _ended(tasks: list[asyncio.Task[Any]], first: Callable[[], Awaitable[bool | None]] | None) -> None:
    left: bool | None = False
    try:
        if first is not None:
            left = await first()
    finally:
        for task in [] if left else tasks:
            task.cancel()
            await asyncio.wait([task])


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread. A cancellation waits until the work is done, because threads cannot be stopped."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


async def all_or_first_error(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results. If one coroutine fails, cancel and await the others so that no task outlives the call."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
