"""One cell of an elastic run: connects the run's agent to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.core.pool import WorkerHandle
from farandole.driver.elastic.agent import ElasticAgent
from farandole.driver.elastic.host import ElasticHost
from farandole.driver.kernels.group import Cell, execute
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.workers.worker import Progress
from farandole.exceptions import UsageError
from farandole.protocol import Notify


@dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """Callbacks of a run: `notice` receives a sentence for the user, and `assigned` the workers in rank order."""

    notice: Notify
    assigned: Callable[[Sequence[str]], None]

    def warn(self, text: str) -> None:
        """Show a notice that is a warning."""
        self.notice(text, warning=True)


class ElasticCell(ElasticHost):
    """Executes a cell on the workers and ranks of a cluster, under an elastic agent."""

    def __init__(self, core: ClusterCore, cell: Cell, options: Elastic, callbacks: RunCallbacks) -> None:
        self._core = core
        self._cell = cell
        self._options = options
        self._callbacks = callbacks
        # Only one task at a time may start workers, because two tasks would start the same ones.
        self._scaling = asyncio.Lock()
        self._leaving: set[str] = set()
        """Names of the workers to stop as soon as the run continues without their ranks."""
        self._agent = ElasticAgent(self, core.group, options)

    async def run(self) -> list[Reply]:
        """Execute the cell, and return its outcomes as `ElasticAgent.run` does."""
        self._core.group.clear()
        return await self._agent.run(list(self._core.group.kernels))

    def stop(self) -> None:
        """Stop the run at the user's request."""
        self._agent.stop()

    def hear(self, kernel: RankKernel, records: Sequence[dict[str, Any]]) -> None:
        """Process messages from a rank."""
        for record in records:
            self._agent.membership.update(kernel, record)

    async def scale(self, workers: int, progress: Progress) -> None:
        """Start or stop workers during the run. The world changes at one of the next commits."""
        async with self._scaling:
            handles = [handle for handle in self._core.handles if handle.worker.name not in self._leaving]
            if workers < len(handles):
                self._remove(handles[workers:], handles[:workers])
            else:
                if workers > len(handles):
                    await self._core.grow(workers - len(handles), progress)
                # This is also needed if the number is unchanged, because ranks may have failed to join earlier.
                self._agent.retry_new_ranks()
        progress("the run changes its size at its next commit")

    async def replace_lost(self) -> list[RankKernel]:
        """Replace lost ranks and workers. No progress is shown because the agent reports the ranks that join."""
        async with self._scaling:
            await self._core.refill(lambda _: None)
            return [kernel for handle in self._core.handles for kernel in handle.kernels]

    async def launch(self, kernel: RankKernel) -> asyncio.Task[Reply]:
        """Start the cell on a rank of the world."""
        return self._core.group.begin(kernel, execute(kernel, self._cell))

    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> asyncio.Task[Reply]:
        """Prepare a new kernel, and start the cell on it."""
        await self._core.admit(kernel, rank=rank, size=size)
        return await self.launch(kernel)

    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Make these waiting ranks form a world."""
        await self._core.form(kernels)

    async def release(self, kernels: Sequence[RankKernel]) -> None:
        """Stop the workers of ranks that have left the run."""
        async with self._scaling:
            names = {kernel.worker.name for kernel in kernels}
            await self._core.drop(sorted(names))
            self._leaving -= names

    def notify(self, text: str, *, warning: bool = False) -> None:
        """Show the user a notice."""
        self._callbacks.notice(text, warning=warning)

    def assigned(self, workers: Sequence[str]) -> None:
        """Report the names of the ranks' workers to the callback."""
        self._callbacks.assigned(workers)

    def _remove(self, leaving: Sequence[WorkerHandle], staying: Sequence[WorkerHandle]) -> None:
        left = sum(len(handle.kernels) for handle in staying)
        if left < self._options.min_ranks:
            raise UsageError(
                f"{left} rank{'' if left == 1 else 's'} would be left, and the run needs at least "
                f"{self._options.min_ranks} (--min-ranks); keep more workers, or stop the run first"
            )
        self._leaving |= {handle.worker.name for handle in leaving}
        self._agent.remove([kernel for handle in leaving for kernel in handle.kernels])
