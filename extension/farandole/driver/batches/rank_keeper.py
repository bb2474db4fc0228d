"""Keeps the ranks of a cluster alive while Dask computes a job on them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.data.engine import DataEngine
from farandole.driver.elastic.run import RunCallbacks
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.workers.worker import Progress
from farandole.exceptions import FarandoleError, RankDiedError

LOOK_SECONDS = 0.25
"""How often the ranks are looked at."""
REJOIN_SECONDS = 10.0
"""How long a rank may lack its Dask worker, which usually means that it is lost and that this is not known yet."""
RETRY_SECONDS = 5.0
"""The pause after a failed attempt to replace a rank."""
MOST_FAILURES = 3
"""The number of failed attempts after which there is a pause, even if further ranks were lost."""
LOST_SECONDS = 120.0
"""How long there may be no Dask worker at all."""
MEND_SECONDS = 30.0
"""How long the end of a job waits for lost ranks to be replaced, so that the next cell finds a complete cluster."""


class RankKeeper:
    """Replaces lost ranks until the job ends. In this time, the cluster is reserved as for the cell of an elastic run.

    It implements `farandole.driver.core.guests.ElasticRun`. All methods must be called on the core's event loop.
    """

    def __init__(
        self,
        core: ClusterCore,
        engine: DataEngine,
        callbacks: RunCallbacks,
        on_workers: Callable[[Mapping[str, int]], None],
    ) -> None:
        """Make a keeper. ``on_workers`` gets the rank of each Dask worker by its address, a few times a second."""
        self.stopped = False
        """Whether the user has stopped the job."""
        self._core = core
        self._engine = engine
        self._callbacks = callbacks
        self._on_workers = on_workers
        self._over = asyncio.Event()
        # A change of size and a replacement would start the same workers.
        self._changing = asyncio.Lock()
        self._mending: asyncio.Task[None] | None = None
        self._complete_at = self._any_at = time.monotonic()
        self._problem = ""
        self._failures = 0
        """How many attempts to replace ranks have failed since the last one that did not."""

    async def run(self) -> list[Reply]:
        """Look after the ranks until `end` or `stop` is called. Raises RankDiedError if no rank can be started."""
        self._core.group.clear()
        try:
            while not self._over.is_set():
                await self._look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), LOOK_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._complete(), MEND_SECONDS)
        finally:
            await self._close()
        return []

    def end(self) -> None:
        """End, because the job has ended."""
        self._over.set()

    def stop(self) -> None:
        """End at the user's request."""
        self.stopped = True
        self._over.set()

    def hear(self, kernel: RankKernel, records: Sequence[dict[str, Any]]) -> None:
        """Ignore messages from ranks, which run no cell of this job."""

    async def scale(self, workers: int, progress: Progress) -> None:
        """Start or stop workers. New ranks get the next parts."""
        async with self._changing:
            await self._core.resize(workers, progress)
            self._assign()

    async def _look(self) -> None:
        workers, kernels = await self._engine.workers(), self._core.group.kernels
        self._on_workers(workers)
        now = time.monotonic()
        self._any_at = now if workers else self._any_at
        self._complete_at = now if len(workers) >= len(kernels) else self._complete_at
        if now - self._any_at > LOST_SECONDS:
            raise RankDiedError(
                f"there has been no rank for {LOST_SECONDS:.0f} seconds: {self._problem or 'none could be started'}. "
                "Start the cluster again, and call map_batches with the same arguments to continue"
            )
        if self._mending is not None and self._mending.done():
            self._mending.result()
            self._mending = None
        lacking = not all(kernel.alive for kernel in kernels) or now - self._complete_at > REJOIN_SECONDS
        if lacking and self._mending is None:
            self._mending = asyncio.create_task(self._mend())

    async def _complete(self) -> None:
        """Replace ranks that were lost with the last parts. The driver may not know yet that they are lost."""
        while not (self.stopped or self._problem):
            if self._mending is None and len(await self._engine.workers()) >= len(self._core.group.kernels):
                return
            await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _mend(self) -> None:
        try:
            async with self._changing:
                await self._core.reconcile(self._callbacks.warn)
                await self._engine.join()
                self._assign()
                self._problem, self._failures = "", 0
        except FarandoleError as exc:
            self._failures += 1
            # That another rank is lost meanwhile is no reason to wait.
            if not isinstance(exc, RankDiedError) or self._failures >= MOST_FAILURES:
                await self._pause(str(exc).splitlines()[0])

    async def _pause(self, problem: str) -> None:
        if problem != self._problem:
            self._callbacks.warn(f"a lost rank could not be replaced yet, trying again: {problem}")
        self._problem = problem
        await asyncio.sleep(RETRY_SECONDS)

    def _assign(self) -> None:
        self._complete_at = time.monotonic()
        self._callbacks.assigned([kernel.worker.name for kernel in self._core.group.kernels])

    async def _close(self) -> None:
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.wait([self._mending])
