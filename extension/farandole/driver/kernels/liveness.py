"""Whether ranks answer: a process that is stopped, or hangs, closes no connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.workers.worker import Progress

HUNG_SECONDS = 30.0
"""How long a rank may not answer; one that computes does, in a thread of its own."""


class Liveness:
    """Asks ranks again and again for a sign of life, at the cost of one small message to each.

    Whoever is silent for `seconds` is told of, and then again once it answers. With `give_up` it is told of at half
    that time, and given up at the end of it.
    """

    def __init__(
        self,
        kernels: Callable[[], Iterable[RankKernel]],
        tell: Progress,
        *,
        seconds: float = HUNG_SECONDS,
        give_up: Callable[[RankKernel], None] | None = None,
    ) -> None:
        self._kernels = kernels
        self._tell = tell
        self._seconds = seconds
        self._give_up = give_up
        self._silent: set[RankKernel] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        looks: dict[RankKernel, asyncio.Task[None]] = {}
        try:
            while True:
                await asyncio.sleep(self._seconds / 6)
                # Whoever cannot be reached says nothing of itself; when it is lost, its connection finds out.
                for kernel in [one for one in self._kernels() if one.alive and one.connected]:
                    # One that is silent holds nobody else up.
                    if kernel not in looks or looks[kernel].done():
                        looks[kernel] = asyncio.create_task(self._look(kernel))
        finally:
            for look in looks.values():
                look.cancel()

    async def _look(self, kernel: RankKernel) -> None:
        answer = asyncio.create_task(kernel.ping())
        try:
            patience = self._seconds / 2 if self._give_up else self._seconds
            if not await _done(answer, patience):
                self._tell_silent(kernel)
                # It ends with the rank, with its connection or with the watch; else only with an end set here.
                if not await _done(answer, patience if self._give_up else None) and self._give_up:
                    self._give_up(kernel)
            if answer.done() and answer.result().status == "ok" and kernel in self._silent:
                self._silent.remove(kernel)
                self._tell(f"{_name(kernel)} answers again")
        finally:
            answer.cancel()

    def _tell_silent(self, kernel: RankKernel) -> None:
        if kernel in self._silent:
            return
        self._silent.add(kernel)
        if self._give_up:
            half = f"{self._seconds / 2:g} s"
            self._tell(f"{_name(kernel)} has not answered for {half}; after {half} more it is taken for lost")
        else:
            self._tell(
                f"{_name(kernel)} has not answered for {self._seconds:g} s: it hangs, its process is stopped, or a "
                "call there lets no other thread run; stop the run or wait"
            )


async def _done(answer: asyncio.Task[object], seconds: float | None) -> bool:
    await asyncio.wait([answer], timeout=seconds)
    return answer.done()


def _name(kernel: RankKernel) -> str:
    return f"rank {kernel.rank} (worker {kernel.worker.name})"
