"""One cell of an elastic run: what its supervisor needs of the cluster, and what the cluster needs of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.driver.elastic.agent import ElasticAgent
from farandole.driver.elastic.host import ElasticHost
from farandole.driver.kernels.group import Cell, execute
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.workers.worker import Progress
from farandole.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from farandole.driver.core.core import ClusterCore


@dataclass(frozen=True, kw_only=True)
class RunCallbacks:
    """Who is told of changes: of what happened, in a sentence, and of the workers of the ranks 0, 1, ..."""

    notice: Callable[[str], None]
    seated: Callable[[Sequence[str]], None]


class ElasticCell(ElasticHost):
    """Executes a cell under a supervisor, with the workers and ranks of a cluster."""

    def __init__(self, core: ClusterCore, cell: Cell, options: Elastic, told: RunCallbacks) -> None:
        self._core = core
        self._cell = cell
        self._options = options
        self._told = told
        # Workers are started by one at a time: two would start the same.
        self._staffing = asyncio.Lock()
        self._leaving: set[str] = set()
        """Workers that the cluster has until the run has parted with their ranks."""
        self._supervisor = ElasticAgent(self, core.group, options)

    async def run(self) -> list[Reply]:
        """Execute the cell and return how it ended on each rank that saw its end."""
        self._core.group.clear()
        return await self._supervisor.run(list(self._core.group.kernels))

    def stop(self) -> None:
        """Let the run end: the user has stopped it."""
        self._supervisor.stop()

    def hear(self, kernel: RankKernel, records: Sequence[dict[str, Any]]) -> None:
        """Take in what a rank says of itself."""
        for record in records:
            self._supervisor.members.hear(kernel, record)

    async def scale(self, workers: int, progress: Progress) -> None:
        """Start or stop workers while the run goes on; its world changes at one of its next commits."""
        async with self._staffing:
            crews = [crew for crew in self._core.crews if crew.worker.name not in self._leaving]
            if workers < len(crews):
                self._send_off(crews[workers:], crews[:workers])
            else:
                if workers > len(crews):
                    await self._core.grow(workers - len(crews), progress)
                # Also with as many as there are: their new ranks may have failed to join.
                self._supervisor.try_again()
        progress("the run takes the change in at its next commit")

    async def refill(self) -> list[RankKernel]:
        """Start lost ranks and workers anew; the supervisor tells when they join."""
        async with self._staffing:
            await self._core.refill(_silent)
            return [kernel for crew in self._core.crews for kernel in crew.kernels]

    async def launch(self, kernel: RankKernel) -> asyncio.Task[Reply]:
        """Start the cell on a rank of the world."""
        return self._core.group.begin(kernel, execute(kernel, self._cell))

    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> asyncio.Task[Reply]:
        """Prepare a new kernel and start the cell on it."""
        await self._core.admit(kernel, rank=rank, size=size)
        return self._core.group.begin(kernel, execute(kernel, self._cell))

    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Tell ranks that wait to form a world."""
        await self._core.form(kernels)

    async def release(self, kernels: Sequence[RankKernel]) -> None:
        """Stop the workers of ranks that have left."""
        async with self._staffing:
            names = {kernel.worker.name for kernel in kernels}
            await self._core.drop(sorted(names))
            self._leaving -= names

    def tell(self, text: str) -> None:
        """Tell the user something, in one sentence."""
        self._told.notice(text)

    def seated(self, workers: Sequence[str]) -> None:
        """Note on which workers the ranks are now."""
        self._told.seated(workers)

    def _send_off(self, going: Sequence[Any], staying: Sequence[Any]) -> None:
        left = sum(len(crew.kernels) for crew in staying)
        if left < self._options.min_ranks:
            raise UsageError(
                f"{left} rank{'' if left == 1 else 's'} would be left, and the run must have {self._options.min_ranks} "
                "(--min-ranks); keep more workers, or stop the run first"
            )
        self._leaving |= {crew.worker.name for crew in going}
        self._supervisor.part_with([kernel for crew in going for kernel in crew.kernels])


def _silent(_text: str) -> None:
    return None
