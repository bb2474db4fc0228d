"""Notices about a hub that cannot be reached, for example by a laptop without a network."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from farandole.driver.kernels.group import RankGroup
from farandole.driver.loop import watched
from farandole.driver.workers.worker import Progress
from farandole.times import time_text

V = TypeVar("V")

SILENT_SECONDS = 10.0
"""The time without an answer after which there is a notice."""
PAUSE_SECONDS = 1.0


class OutageNotices:
    """Gives a notice if neither a worker of the ranks nor the hub answers, and another one when the hub answers again.

    Without a notice, a cell that waits for the hub looks like one that hangs.
    """

    def __init__(
        self, group: RankGroup, notice: Progress, *, seconds: float = SILENT_SECONDS, pause: float = PAUSE_SECONDS
    ) -> None:
        self._group = group
        self._notice = notice
        self._seconds = seconds
        self._pause = pause

    async def during(self, work: Coroutine[Any, Any, V]) -> V:
        """Return the result of a coroutine that executes a cell. Until then, give notices."""
        return await watched(work, self._run())

    async def _run(self) -> None:
        is_said = False
        while True:
            silent = (kernel.worker.silent_since for kernel in self._group.kernels)
            since = min((one for one in silent if one is not None), default=None)
            if is_said and since is None:
                self._notice("the hub answers again")
                is_said = False
            elif not is_said and since is not None and time.time() - since > self._seconds:
                self._notice(_no_connection(since))
                is_said = True
            await asyncio.sleep(self._pause)


def _no_connection(since: float) -> str:
    return (
        f"no connection to the hub since {time_text(since, now=time.time())}. The ranks continue, and their output "
        "comes when the hub answers again; an interrupt ends the waiting"
    )
