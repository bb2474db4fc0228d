"""Lets a driver take over an elastic run whose previous driver has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from farandole.driver.core.core import ClusterCore
from farandole.driver.elastic.host import ElasticTimeouts
from farandole.driver.elastic.run import ElasticCell, RunCallbacks
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import Cell
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.recovery.reattach import RunReader, until_caught_up

READ_SECONDS = 600.0
"""How many seconds it may take to read all earlier messages. Training continues meanwhile, but lost ranks are not
replaced."""
END_SECONDS = 5.0
"""How many seconds to wait for the end of lost ranks' journals after all other journals have been read."""


@dataclass(frozen=True, kw_only=True)
class JournalReplay:
    """The messages that a run has produced so far.

    - ``readers`` contains one reader for each journal. Ranks that were lost with their journals have no reader.
    - ``workers`` contains the names of the workers of ranks 0, 1, and so on, as far as they are known.
    """

    readers: Sequence[RunReader]
    workers: Sequence[str]


class AdoptedRun(ElasticCell):
    """Supervises a cell that another driver has started, and reads the ranks' messages from their workers' journals."""

    def __init__(
        self, core: ClusterCore, cell: Cell, options: Elastic, callbacks: RunCallbacks, replay: JournalReplay
    ) -> None:
        super().__init__(core, cell, options, callbacks)
        self._replay = replay
        self._readers: dict[RankKernel, RunReader] = {}

    async def run(self) -> list[Reply]:
        """Supervise the cell to its end, and return its outcomes as `ElasticAgent.run` does."""
        self._core.group.clear()
        kernels = {kernel.kernel_id: kernel for kernel in self._core.group.kernels}
        lost: dict[RunReader, asyncio.Task[Reply]] = {}
        for reader in self._replay.readers:
            if (kernel := kernels.get(reader.kernel_id)) is not None:
                self._readers[kernel] = reader
                reader.kernel.on_records = kernel.on_records
                self._core.group.begin(kernel, self._read(kernel, reader))
            else:
                lost[reader] = asyncio.create_task(reader.read(self._cell.sink))
        try:
            await until_caught_up(self._replay.readers, READ_SECONDS)
            if lost:
                await asyncio.wait(lost.values(), timeout=END_SECONDS)
            # The key is the last number that a rank had. If two ranks had the same number, the later cause is kept.
            causes = {reader.kernel.last_rank: task.result().evalue for reader, task in lost.items() if task.done()}
            return await self._lead(causes)
        finally:
            for task in lost.values():
                task.cancel()

    async def _lead(self, causes: Mapping[int, str]) -> list[Reply]:
        members = self._agent.membership
        seconds = ElasticTimeouts(hung=self._options.hung).call
        found = await members.call_or_kill(self._readers, rank_calls.identity(), seconds=seconds)
        for kernel in sorted(self._readers, key=lambda one: int(found[one]["rank"]) if one in found else one.rank):
            in_world = not found.get(kernel, {}).get("outside")
            members.add(kernel, self._core.group.cell_of(kernel), in_world=in_world)
        members.assign_ranks(list(members.world))
        members.lost += [
            self._lost(rank, causes.get(rank, "no driver led the run when it ended"))
            for rank in missing([found[kernel] for kernel in members.world if kernel in found])
        ]
        self.assigned([kernel.worker.name for kernel in members.world])
        workers = set(self._replay.workers)
        present = {handle.worker.name for handle in self._core.handles}
        gone = sorted(workers - present)
        self.notify(_takeover_text(gone, len(workers)), warning=bool(gone))
        self._agent.admit_new_ranks()
        return await self._agent.lead()

    def _lost(self, rank: int, cause: str) -> Reply:
        worker = dict(enumerate(self._replay.workers)).get(rank, "unknown")
        return Reply(rank=rank, worker=worker, status="dead", ended=time.monotonic(), evalue=cause)

    async def _read(self, kernel: RankKernel, reader: RunReader) -> Reply:
        reply = await reader.read(self._cell.sink, kernel)
        if reply.status == "dead":
            kernel.mark_dead(reply.evalue)
        return replace(reply, rank=kernel.rank)


def _takeover_text(gone: Sequence[str], workers: int) -> str:
    """Return the notice of a takeover. It names lost workers, because a takeover does not replace them by itself."""
    text = "another driver leads the run now, and replaces lost ranks again"
    names = f"worker {gone[0]} is" if len(gone) == 1 else f"workers {', '.join(gone)} are"
    return f"{text}; {names} gone: `%cluster scale {workers}` replaces lost workers" if gone else text


def missing(identities: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return which ranks of a world did not answer, based on the ranks and world sizes of those that did."""
    size = max((one["size"] for one in identities), default=1)
    return sorted(set(range(size)) - {one["rank"] for one in identities})
