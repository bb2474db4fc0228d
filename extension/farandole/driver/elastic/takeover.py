"""An elastic run whose driver is gone, led by another one from wherever its ranks stand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from farandole.driver.elastic.host import ElasticTimeouts
from farandole.driver.elastic.run import ElasticCell, RunCallbacks
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import Cell
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.recovery.reattach import RunReader, until_caught_up

if TYPE_CHECKING:
    from farandole.driver.core.core import ClusterCore

READ_SECONDS = 600.0
"""How long it may take to read what ranks have said before; the run goes on meanwhile, and lost ranks wait."""

END_SECONDS = 5.0
"""How long the last word of ranks that are gone is waited for once all else has been read."""


@dataclass(frozen=True, kw_only=True)
class JournalReplay:
    """What ranks have said so far: a reader for each that ever took part; `whole` is called once all has been read.

    ``workers`` are those of the ranks 0, 1, ... as far as is known.
    """

    readers: Sequence[RunReader]
    workers: Sequence[str]
    whole: Callable[[], None]


class AdoptedRun(ElasticCell):
    """Leads a cell that another driver has started: its ranks are heard through their workers' records."""

    def __init__(
        self, core: ClusterCore, cell: Cell, options: Elastic, told: RunCallbacks, heard: JournalReplay
    ) -> None:
        super().__init__(core, cell, options, told)
        self._heard = heard
        self._readers: dict[RankKernel, RunReader] = {}

    async def run(self) -> list[Reply]:
        """Lead the cell to its end and return how it ended on each rank that saw it."""
        self._core.group.clear()
        kernels = {kernel.kernel_id: kernel for kernel in self._core.group.kernels}
        gone: dict[RunReader, asyncio.Task[Reply]] = {}
        for reader in self._heard.readers:
            if (kernel := kernels.get(reader.kernel_id)) is not None:
                self._readers[kernel] = reader
                reader.kernel.on_records = kernel.on_records
                self._core.group.begin(kernel, self._read(kernel, reader))
            else:
                gone[reader] = asyncio.create_task(reader.read(self._cell.sink))
        try:
            await until_caught_up(self._heard.readers, READ_SECONDS)
            self._heard.whole()
            if gone:
                await asyncio.wait(gone.values(), timeout=END_SECONDS)
            # By the ranks that they were last; of two, the later one.
            causes = {one.kernel.voice: task.result().evalue for one, task in gone.items() if task.done()}
            return await self._lead(causes)
        finally:
            for task in gone.values():
                task.cancel()

    async def _lead(self, causes: Mapping[int, str]) -> list[Reply]:
        members = self._supervisor.members
        who = await members.tell(
            self._readers, rank_calls.identity(), seconds=ElasticTimeouts(hung=self._options.hung).ask
        )
        for kernel in sorted(self._readers, key=lambda one: _place(who, one)):
            inside = not who.get(kernel, {}).get("outside")
            members.add(kernel, self._core.group.cell_of(kernel), inside=inside)
        members.assign_ranks(list(members.inside))
        members.lost += [
            self._lost(rank, causes.get(rank, "nobody led the run when it ended"))
            for rank in missing([who[kernel] for kernel in members.inside if kernel in who])
        ]
        self._told.seated([kernel.worker.name for kernel in members.inside])
        workers = set(self._heard.workers)
        self._told.notice(_now_led(sorted(workers - {crew.worker.name for crew in self._core.crews}), len(workers)))
        self._supervisor.take_in()
        return await self._supervisor.lead()

    def _lost(self, rank: int, cause: str) -> Reply:
        worker = dict(enumerate(self._heard.workers)).get(rank, "unknown")
        return Reply(rank=rank, worker=worker, status="dead", ended=time.monotonic(), evalue=cause)

    async def _read(self, kernel: RankKernel, reader: RunReader) -> Reply:
        reply = await reader.read(self._cell.sink, kernel)
        if reply.status == "dead":
            kernel.mark_dead(reply.evalue)
        return replace(reply, rank=kernel.rank)


def _now_led(gone: Sequence[str], workers: int) -> str:
    """Return what users are told; who has attached to what is left does not start workers by itself."""
    text = "another driver leads the run now, and replaces lost ranks again"
    if not gone:
        return text
    names = f"worker {gone[0]} is" if len(gone) == 1 else f"workers {', '.join(gone)} are"
    return f"{text}; {names} gone: `%cluster scale {workers}` starts {'it' if len(gone) == 1 else 'them'} anew"


def missing(who: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the ranks of a world that none of those who answered is, by what these say of rank and size."""
    size = max((one["size"] for one in who), default=1)
    return sorted(set(range(size)) - {one["rank"] for one in who})


def _place(who: Mapping[RankKernel, Any], kernel: RankKernel) -> int:
    return int(who[kernel]["rank"]) if kernel in who else kernel.rank
