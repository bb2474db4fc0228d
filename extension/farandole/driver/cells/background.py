"""Runs that go on while no cell waits for them: detached ones, and those that an earlier driver began."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from farandole.driver.cells.relay import OutputRelay, Show, Watch
from farandole.driver.kernels.replies import Reply
from farandole.driver.loop import PUMP_SECONDS
from farandole.driver.output import Block
from farandole.exceptions import FarandoleError
from farandole.protocol import Status
from farandole.runs.model import still_going
from farandole.runs.run import Run

Check: TypeAlias = Callable[[Run, Sequence[Reply]], None]
Fail: TypeAlias = Callable[[Run, BaseException, float | None], None]


class BackgroundRun:
    """A run and the loop's task that leads it; its output waits until somebody shows it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._blocks: deque[Block] = deque()
        self.screen = OutputRelay(list(range(run.size)), self._blocks.append)
        self._refresh: Callable[[], None] = lambda: None
        self._over = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, watch: Watch) -> None:
        """Have the run watched from now on, by the loop's thread."""
        self._refresh = watch(self.run)
        if self._over.is_set():
            # It may have ended before there was anything to refresh.
            self._refresh()

    async def begin(
        self,
        work: Coroutine[Any, Any, Sequence[Reply]],
        *,
        check: Check,
        fail: Fail,
        ended: float | None = None,
    ) -> None:
        """Lead the run from now on: ``check`` raises for a bad end, ``fail`` writes that down.

        A run that is told again may have ended before, at ``ended``.
        """
        self._task = asyncio.create_task(self._lead(work, check, fail, ended), name=f"run {self.run.id}")
        # A task that is cancelled before its first step does none, and nobody would learn of its end.
        await asyncio.sleep(0)

    async def let_go(self) -> None:
        """Leave the run to itself."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def flush(self) -> None:
        """Have all output that was heard ready to be shown, also what waits for its like from other ranks."""
        self.screen.pump(flush=True)

    def show(self, show: Show) -> None:
        """Show the output that has come."""
        while self._blocks:
            show(self._blocks.popleft())

    def wait(self, show: Show, timeout: float | None = None) -> Run:
        """Show output until the run has ended, and raise as its cell would; see `Run.wait`."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while not self._over.wait(PUMP_SECONDS) and (give_up is None or time.monotonic() < give_up):
            self.show(show)
        self.show(show)
        if not self._over.is_set():
            raise still_going(self.run.id, timeout)
        return self.run.wait()

    async def _lead(
        self,
        work: Coroutine[Any, Any, Sequence[Reply]],
        check: Check,
        fail: Fail,
        ended: float | None,
    ) -> None:
        ticker = asyncio.create_task(self._tick())
        # What is left is written in another thread: a slow volume must not hold up the loop, which answers workers.
        try:
            check(self.run, await work)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.run.let_go)
            raise
        except FarandoleError as exc:
            self.run.failure = exc
            await asyncio.to_thread(fail, self.run, exc, ended)
        except BaseException as exc:
            await asyncio.to_thread(fail, self.run, exc, ended)
            raise
        else:
            await asyncio.to_thread(self.run.finish, Status.FINISHED, ended=ended)
        finally:
            ticker.cancel()
            self.screen.pump(flush=True)
            # The other way round a `watch` in between would see neither the end nor a last refresh.
            self._over.set()
            self._refresh()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(PUMP_SECONDS)
            self.screen.pump()
            self._refresh()
