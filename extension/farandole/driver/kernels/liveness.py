"""Detects ranks that have stopped answering.

Pings are necessary because a stopped or hung process does not close its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.protocol import Notify

HUNG_SECONDS = 30.0
"""How many seconds a rank may be silent before it is reported or, in an elastic run, treated as lost. A rank that is
computing still answers, because its control thread does."""


class Liveness:
    """Pings ranks periodically with one small message each.

    - Without `give_up`, a rank that has not answered for `seconds` is reported.
    - With `give_up`, a rank is reported after half of that time, and `give_up` is called for it when the time is over.
    - A reported rank that answers again is reported as well.
    - A rank is not to blame if its worker does not answer on the same websocket either. For example, this machine may
      have no network or another one. `Connection` determines whether such a rank is lost.
    """

    def __init__(
        self,
        kernels: Callable[[], Iterable[RankKernel]],
        report: Notify,
        *,
        seconds: float = HUNG_SECONDS,
        give_up: Callable[[RankKernel], None] | None = None,
    ) -> None:
        self._kernels = kernels
        self._report = report
        self._seconds = seconds
        self._give_up = give_up
        self._silent: set[RankKernel] = set()

    async def run(self) -> None:
        """Ping the ranks until cancelled."""
        pings: dict[RankKernel, asyncio.Task[None]] = {}
        try:
            while True:
                await asyncio.sleep(self._seconds / 6)
                # A rank without a connection cannot answer.
                for kernel in [one for one in self._kernels() if one.alive and one.connected]:
                    # Each rank has its own task, so that a silent rank does not delay the others.
                    if kernel not in pings or pings[kernel].done():
                        pings[kernel] = asyncio.create_task(self._ping(kernel))
        finally:
            for ping in pings.values():
                ping.cancel()

    async def _ping(self, kernel: RankKernel) -> None:
        answer = asyncio.create_task(kernel.ping())
        timeout = self._seconds / 2 if self._give_up else self._seconds
        try:
            if await _is_silent(kernel, answer, timeout):
                self._report_silent(kernel)
                # Without `give_up`, wait until the rank answers or dies, its connection breaks, or `run` is cancelled.
                if await _is_silent(kernel, answer, timeout if self._give_up else None) and self._give_up:
                    self._give_up(kernel)
            if answer.done() and answer.result().status == "ok" and kernel in self._silent:
                self._silent.remove(kernel)
                self._report(f"{_name(kernel)} answers again")
        finally:
            answer.cancel()

    def _report_silent(self, kernel: RankKernel) -> None:
        if kernel in self._silent:
            return
        self._silent.add(kernel)
        if self._give_up:
            half = f"{self._seconds / 2:g} s"
            self._report(
                f"{_name(kernel)} has not answered for {half}; after {half} more it is treated as lost", warning=True
            )
        else:
            self._report(
                f"{_name(kernel)} has not answered for {self._seconds:g} s: it hangs, its process is stopped, or a "
                "call blocks all its threads; stop the run or wait",
                warning=True,
            )


async def _is_silent(kernel: RankKernel, answer: asyncio.Task[Reply], seconds: float | None) -> bool:
    """Return whether a rank sends no answer for this many seconds, although its worker can be reached."""
    await asyncio.wait([answer], timeout=seconds)
    return not answer.done() and await kernel.worker_answers() and not answer.done()


def _name(kernel: RankKernel) -> str:
    return f"rank {kernel.rank} (worker {kernel.worker.name})"
