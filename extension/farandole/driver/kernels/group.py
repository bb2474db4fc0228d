"""Executes cells on many kernels. When one rank fails, the other ranks are released."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.errors import rank_error
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import CONNECTION_LOST, Reply, Sink
from farandole.driver.workers.worker import GONE
from farandole.exceptions import DeadlineError, WorkerStartError
from farandole.protocol import Part

T = TypeVar("T")

GRACE_SECONDS = 1.0
"""How many seconds ranks that work together may take to end by themselves after one of them has failed."""
INTERRUPT_SECONDS = 1.0
"""How many seconds a rank may take to end its cell after an interrupt before its world is shut down."""
REACH_SECONDS = 2.0
"""How many seconds a worker may take to pass on an interrupt before the rank is treated as lost."""
REPEATS = 5
"""How often a call is repeated whose answer was lost. A connection that breaks each time has another fault."""
RELEASE_SECONDS = 4.2
"""How many seconds a release may take in total before the ranks that are still busy are killed. `Cluster.interrupt`
has to end a cell within five seconds."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell to execute on several ranks.

    - `before` and `after` are calls that are sent together with the cell, as separate silent requests.
    - `mark` describes the run to which the cell belongs, for the workers' journals.
    - `place` is the place of the code in the notebook, see `farandole.protocol.CELL_PLACE`.
    """

    code: str
    sink: Sink
    before: RankCall[None] | None = None
    after: RankCall[None] | None = None
    mark: dict[str, Any] | None = None
    place: dict[str, int] | None = None

    def marked(self, part: Part) -> dict[str, Any] | None:
        """Return the `mark` for one of the three requests. Only the first request contains the full description."""
        if self.mark is None:
            return None
        return {**self.mark, "part": part} if part is Part.BEGIN else {"run": self.mark["run"], "part": part}


class RankGroup:
    """The kernels of a cluster in rank order, and the tasks of their running cells."""

    def __init__(self) -> None:
        self.kernels: list[RankKernel] = []
        self._cells: dict[RankKernel, asyncio.Task[Reply]] = {}
        self.interrupted = False

    def assign_ranks(self, kernels: Sequence[RankKernel]) -> None:
        """Assign ranks 0, 1, and so on to these kernels."""
        self.kernels = list(kernels)
        for rank, kernel in enumerate(self.kernels):
            kernel.rank = rank

    @property
    def busy(self) -> list[RankKernel]:
        """The ranks on which a cell is running."""
        return [kernel for kernel, cell in self._cells.items() if not cell.done()]

    def has_ended(self, kernel: RankKernel) -> bool:
        """Return whether the current cell has ended on a rank. It has not if the rank does not run that cell at all."""
        return kernel in self._cells and self._cells[kernel].done()

    def runs(self, kernel: RankKernel) -> bool:
        """Return whether a cell is running on a rank."""
        return kernel in self._cells and not self._cells[kernel].done()

    @property
    def dead(self) -> list[RankKernel]:
        """The ranks that are known to be dead."""
        return [kernel for kernel in self.kernels if not kernel.alive]

    async def control(
        self,
        calls: Sequence[RankCall[T]] | RankCall[T],
        *,
        what: str,
        timeout: float,
        kernels: Sequence[RankKernel] | None = None,
        in_subshell: bool = False,
        repeat: bool = False,
    ) -> list[T]:
        """Call a function on each rank, and return the values in rank order.

        - `calls` is one call for all ranks, or a sequence with one call for each rank.
        - With `in_subshell`, ranks can answer the calls while a cell is running.
        - With `repeat`, a call whose answer was lost with the connection to its rank is made again, so it must be one
          that a rank can answer twice.

        Raises:
            RankError: the call failed on a rank, or a rank died during the call.
            DeadlineError: a rank did not answer within `timeout` seconds.
        """
        chosen = self.kernels if kernels is None else list(kernels)
        each = [calls] * len(chosen) if isinstance(calls, RankCall) else calls
        tasks = {
            kernel: asyncio.create_task(
                _evaluate(kernel, call, in_subshell=in_subshell, repeats=REPEATS if repeat else 0)
            )
            for kernel, call in zip(chosen, each, strict=True)
        }
        _, late = await asyncio.wait(tasks.values(), timeout=timeout)
        if late:
            raise _too_late([kernel for kernel, task in tasks.items() if task in late], what, timeout, late)
        replies = [task.result() for task in tasks.values()]
        if any(reply.status != "ok" for reply in replies):
            raise rank_error(replies, doing=what)
        return [reply.value for reply in replies]

    async def run(self, cell: Cell, kernels: Sequence[RankKernel], *, together: bool) -> list[Reply]:
        """Execute a cell on these ranks, and return its outcome on each, in the given order.

        If the ranks work `together` and one of them fails, the others are released after `GRACE_SECONDS`, because they
        could wait for the failed rank in a collective forever. Ranks that do not work `together` continue.
        """
        return await self.lead({kernel: execute(kernel, cell) for kernel in kernels}, together=together)

    async def lead(self, cells: Mapping[RankKernel, Coroutine[Any, Any, Reply]], *, together: bool) -> list[Reply]:
        """Run `cells`, one coroutine for each rank, and return the replies in order. See `run` for `together`."""
        self.clear()
        # A queue takes linear time. Calling `asyncio.wait` on the remaining ranks each time would take quadratic time.
        ended: asyncio.Queue[asyncio.Task[Reply]] = asyncio.Queue()
        for kernel, cell in cells.items():
            self.begin(kernel, cell).add_done_callback(ended.put_nowait)
        left = len(cells)
        while left:
            finished = [await ended.get(), *(ended.get_nowait() for _ in range(ended.qsize()))]
            left -= len(finished)
            if together and left and any(cell.result().status != "ok" for cell in finished):
                await self._until_idle(GRACE_SECONDS)
                await self.release(together=True)
        return [cell.result() for cell in self._cells.values()]

    def clear(self) -> None:
        """Forget the tasks of earlier cells, and whether a cell was interrupted."""
        self.interrupted = False
        self._cells = {}

    def begin(self, kernel: RankKernel, cell: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
        """Start a cell on a rank, and return the task whose result is the reply."""
        task = self._cells[kernel] = asyncio.create_task(cell)
        return task

    def cell_of(self, kernel: RankKernel) -> asyncio.Task[Reply]:
        """Return the task of the current or most recent cell on a rank."""
        return self._cells[kernel]

    async def interrupt(self, *, together: bool) -> None:
        """Stop the running cell on all its ranks at the user's request."""
        self.interrupted = True
        await self.release(together=together)

    async def free(self, *, together: bool) -> None:
        """Stop cells that another driver began. Ranks that do not reply to a call count as busy."""
        self._cells = {
            kernel: asyncio.create_task(kernel.evaluate(rank_calls.identity().expression)) for kernel in self.kernels
        }
        await self._until_idle(INTERRUPT_SECONDS)
        await self.release(together=together)

    async def release(self, *, together: bool) -> None:
        """End the cells of all busy ranks.

        1. Interrupt the busy ranks, and give them `INTERRUPT_SECONDS` to become idle.
        2. If the ranks work `together`, make all ranks leave the world, including the idle ones.
        3. Interrupt again the ranks that are still busy.
        4. Kill the ranks that are still busy `RELEASE_SECONDS` after the first step began.
        """
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await asyncio.gather(*(interrupt_rank(kernel) for kernel in self.busy))
                await self._until_idle(INTERRUPT_SECONDS)
                # Idle ranks have to leave too, because a rank that is blocked in Gloo returns only after its peers have
                # closed their connections. Ranks that join an elastic run are busy before they are in `kernels`.
                everyone = dict.fromkeys([*self.kernels, *self.busy])
                going = [kernel for kernel in everyone if kernel.alive] if together else self.busy
                await asyncio.gather(*(self._force(kernel, together=together) for kernel in going))
        except TimeoutError:
            await asyncio.gather(*(kernel.kill() for kernel in self.busy))

    async def _force(self, kernel: RankKernel, *, together: bool) -> None:
        """Interrupt a rank if it is still busy, and wait until it is idle.

        If the ranks work `together`, first make the rank leave the world, in a subshell if its main thread is blocked.
        """
        blocked = self.runs(kernel)
        if together:
            await kernel.evaluate(rank_calls.leave().expression, subshell=await kernel.subshell() if blocked else None)
        if self.runs(kernel):
            await interrupt_rank(kernel)
            await asyncio.wait([self._cells[kernel]])

    async def _until_idle(self, timeout: float) -> None:
        if cells := [self._cells[kernel] for kernel in self.busy]:
            await asyncio.wait(cells, timeout=timeout)

    async def close(self) -> None:
        """Close all websockets."""
        await asyncio.gather(*(kernel.close() for kernel in self.kernels))


async def _evaluate(kernel: RankKernel, call: RankCall[Any], *, in_subshell: bool, repeats: int) -> Reply:
    reply = await kernel.evaluate(call.expression, subshell=await kernel.side_subshell() if in_subshell else None)
    if reply.ename == CONNECTION_LOST and repeats:
        return await _evaluate(kernel, call, in_subshell=in_subshell, repeats=repeats - 1)
    return reply


async def execute(kernel: RankKernel, cell: Cell) -> Reply:
    """Execute a cell on a rank, and return the reply."""
    # Sending all requests together saves two round trips, and the kernel executes them in order.
    work = [kernel.execute(cell.code, sink=cell.sink, mark=cell.marked(Part.CELL), place=cell.place)]
    if cell.before:
        work.insert(0, kernel.execute(cell.before.expression, silent=True, mark=cell.marked(Part.BEGIN)))
    if cell.after:
        work.append(kernel.execute(cell.after.expression, silent=True, mark=cell.marked(Part.END)))
    replies = await asyncio.gather(*work)
    return replies[1 if cell.before else 0]


async def interrupt_rank(kernel: RankKernel) -> None:
    """Interrupt a rank. If its worker cannot be reached, mark the rank as dead so that it does not delay others."""
    try:
        async with asyncio.timeout(REACH_SECONDS):
            await kernel.interrupt()
    except (WorkerStartError, TimeoutError):
        kernel.mark_dead(GONE)


def _too_late(
    kernels: Sequence[RankKernel], what: str, timeout: float, tasks: set[asyncio.Task[Reply]]
) -> DeadlineError:
    for task in tasks:
        task.cancel()
    names = ", ".join(f"rank {kernel.rank} (worker {kernel.worker.name})" for kernel in kernels)
    return DeadlineError(
        f"{what}: no answer from {names} within {timeout:g} s. A rank may still be running an earlier cell: "
        "wait for it, use `%cluster interrupt`, or start again with `%cluster stop` and `%cluster start`."
    )
