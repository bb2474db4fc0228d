"""Runs that no notebook cell is waiting for: detached runs, and runs that an earlier driver began."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from farandole.driver.cells.relay import Backlog, OutputRelay, Show, Watch
from farandole.driver.kernels.replies import Reply
from farandole.driver.loop import PUMP_SECONDS
from farandole.exceptions import FarandoleError
from farandole.protocol import Status
from farandole.runs.model import still_going
from farandole.runs.run import Run

Check: TypeAlias = Callable[[Run, Sequence[Reply]], None]
Fail: TypeAlias = Callable[[Run, BaseException, float | None], None]


class BackgroundRun:
    """A run, and the task on the event loop that drives the run. Output is kept until `show` or `wait` is called."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._backlog = Backlog()
        self.relay = OutputRelay(list(range(run.size)), self._backlog.add)
        self._refresh: Callable[[], None] = lambda: None
        self._over = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, watch: Watch) -> None:
        """Call ``watch`` now. Call the function that it returns on the loop's thread until the run has ended.

        If the run has already ended, that function is called once, on this thread.
        """
        self._refresh = watch(self.run)
        if self._over.is_set():
            # The run has already ended, so nothing else would refresh the view to show the final status.
            self._refresh()

    async def begin(
        self,
        work: Coroutine[Any, Any, Sequence[Reply]],
        *,
        check: Check,
        fail: Fail,
        ended: float | None = None,
    ) -> None:
        """Start the task that drives the run.

        - ``work`` follows the run to its end and returns the replies.
        - ``check`` raises an error if the replies show that the run failed.
        - ``fail`` records an error from ``work`` or ``check`` in the run.
        - ``ended`` is the time at which the run ended, in seconds since the epoch, if the run ended before this driver
          took it over.
        """
        self._task = asyncio.create_task(self._lead(work, check, fail, ended), name=f"run {self.run.id}")
        # Let the task take its first step. A task that is cancelled before its first step does not run its cleanup.
        await asyncio.sleep(0)

    async def let_go(self) -> None:
        """Stop following the run, which continues on its ranks."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def flush(self) -> None:
        """Make all output available to `show`, including lines that are waiting for equal lines from other ranks."""
        self.relay.pump(flush=True)

    def show(self, show: Show) -> None:
        """Show all output that is available."""
        for block in self._backlog.take():
            show(block)

    def wait(self, show: Show, timeout: float | None = None, *, refresh: Callable[[], None] = lambda: None) -> Run:
        """Show output until the run has ended, and then return the run or raise its error. See `Run.wait`.

        ``refresh`` is called several times a second, to show the progress.
        """
        give_up = None if timeout is None else time.monotonic() + timeout
        while not self._over.wait(PUMP_SECONDS) and (give_up is None or time.monotonic() < give_up):
            self.show(show)
            refresh()
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
        # Files are written in a thread, because a slow volume must not block the loop that serves all workers.
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
            self.relay.pump(flush=True)
            # The order matters. If `_refresh` came first, a `watch` call in between would not show the final status.
            self._over.set()
            self._refresh()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(PUMP_SECONDS)
            self.relay.pump()
            self._refresh()
