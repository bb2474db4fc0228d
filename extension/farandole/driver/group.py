"""The ranks of a cluster as one: a cell goes to many kernels, and none is left hanging when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from farandole.driver.errors import rank_error
from farandole.driver.kernels import RankKernel, Reply, Sink
from farandole.driver.records import GONE
from farandole.exceptions import DeadlineError, WorkerStartError
from farandole.protocol import Part

GRACE_SECONDS = 1.0
"""How long the others may end by themselves after one rank has failed."""
INTERRUPT_SECONDS = 1.0
"""How long an interrupt may take before the rank's world is shut down under it."""
REACH_SECONDS = 2.0
"""How long a worker may take to pass an interrupt on before it counts as lost."""
RELEASE_SECONDS = 4.2
"""How long all of that may take before a rank is killed: an interrupt ends a cell within five seconds."""


def call(function: str, *arguments: Any) -> str:
    """Return an expression that calls a function of `farandole.ranks.control` and gives its value as JSON."""
    literals = ", ".join(repr(argument) for argument in arguments)
    module = "__import__('farandole.ranks.control', fromlist=['_'])"
    return f"__import__('json').dumps({module}.{function}({literals}))"


class RankGroup:
    """The kernels of a cluster, in the order of their ranks."""

    def __init__(self) -> None:
        self.kernels: list[RankKernel] = []
        self._cells: dict[RankKernel, asyncio.Task[Reply]] = {}
        self.interrupted = False

    def seat(self, kernels: Sequence[RankKernel]) -> None:
        """Take these kernels as the ranks 0, 1, ..."""
        self.kernels = list(kernels)
        for rank, kernel in enumerate(self.kernels):
            kernel.rank = rank

    @property
    def busy(self) -> list[RankKernel]:
        """The ranks on which a cell runs."""
        return [kernel for kernel, cell in self._cells.items() if not cell.done()]

    @property
    def dead(self) -> list[RankKernel]:
        """The ranks whose processes have ended."""
        return [kernel for kernel in self.kernels if not kernel.alive]

    async def control(
        self,
        expressions: Sequence[str] | str,
        *,
        what: str,
        timeout: float,
        kernels: Sequence[RankKernel] | None = None,
    ) -> list[Any]:
        """Evaluate one expression of `call` on each rank and return the values in order.

        Raises:
            RankError: it failed on a rank, or a rank died of it.
            DeadlineError: a rank did not answer in `timeout` seconds.
        """
        chosen = self.kernels if kernels is None else list(kernels)
        each = [expressions] * len(chosen) if isinstance(expressions, str) else expressions
        tasks = {
            kernel: asyncio.create_task(kernel.evaluate(expression))
            for kernel, expression in zip(chosen, each, strict=True)
        }
        _, late = await asyncio.wait(tasks.values(), timeout=timeout)
        if late:
            raise _too_late([kernel for kernel, task in tasks.items() if task in late], what, timeout, late)
        replies = [task.result() for task in tasks.values()]
        if any(reply.status != "ok" for reply in replies):
            raise rank_error(replies, doing=what)
        return [reply.value for reply in replies]

    async def run(
        self,
        code: str,
        kernels: Sequence[RankKernel],
        sink: Sink,
        *,
        before: str = "",
        after: str = "",
        mark: dict[str, Any] | None = None,
        together: bool,
    ) -> list[Reply]:
        """Execute a cell on ranks and return how it ended on each, in order.

        `before` and `after` are sent with it, as silent cells of their own; `mark` is what the workers' record of the
        run says of it. When a rank fails and the ranks work `together`, the others are released soon after: they may
        wait for it in a collective for ever.
        """
        cells = {kernel: _cell(kernel, code, sink, before=before, after=after, mark=mark) for kernel in kernels}
        return await self.lead(cells, together=together)

    async def lead(self, cells: Mapping[RankKernel, Coroutine[Any, Any, Reply]], *, together: bool) -> list[Reply]:
        """Wait until a cell has ended on all its ranks, released as `run` says, and return how, in order."""
        self.interrupted = False
        self._cells = {kernel: asyncio.create_task(cell) for kernel, cell in cells.items()}
        pending = set(self._cells.values())
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if together and pending and any(cell.result().status != "ok" for cell in done):
                _, pending = await asyncio.wait(pending, timeout=GRACE_SECONDS)
                await self.release(together=True)
        return [cell.result() for cell in self._cells.values()]

    async def interrupt(self, *, together: bool) -> None:
        """Stop the running cell on all its ranks, as the user asked."""
        self.interrupted = True
        await self.release(together=together)

    async def free(self, *, together: bool) -> None:
        """Stop what ranks run for another driver, one that is gone, say: those are busy that do not answer."""
        self._cells = {kernel: asyncio.create_task(kernel.evaluate(call("identity"))) for kernel in self.kernels}
        await self._until_idle(INTERRUPT_SECONDS)
        await self.release(together=together)

    async def release(self, *, together: bool) -> None:
        """Get every busy rank back: interrupt it, then have all ranks leave the world, then kill it."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await asyncio.gather(*(_interrupt(kernel) for kernel in self.busy))
                await self._until_idle(INTERRUPT_SECONDS)
                # Idle ranks leave as well: one blocked in Gloo returns only once its peers have closed their ends.
                going = [kernel for kernel in self.kernels if kernel.alive] if together else self.busy
                await asyncio.gather(*(self._force(kernel, together=together) for kernel in going))
        except TimeoutError:
            await asyncio.gather(*(kernel.kill() for kernel in self.busy))

    async def _force(self, kernel: RankKernel, *, together: bool) -> None:
        """Have a rank leave the world, in a subshell where its main thread is blocked, and wait until it is idle."""
        blocked = kernel in self.busy
        if together:
            await kernel.evaluate(call("leave"), subshell=await kernel.subshell() if blocked else None)
        if kernel in self.busy:
            await _interrupt(kernel)
            await asyncio.wait([self._cells[kernel]])

    async def _until_idle(self, timeout: float) -> None:
        if cells := [self._cells[kernel] for kernel in self.busy]:
            await asyncio.wait(cells, timeout=timeout)

    async def close(self) -> None:
        """Close all websockets."""
        await asyncio.gather(*(kernel.close() for kernel in self.kernels))


async def _cell(
    kernel: RankKernel, code: str, sink: Sink, *, before: str, after: str, mark: dict[str, Any] | None
) -> Reply:
    def marked(part: Part) -> dict[str, Any] | None:
        if mark is None:
            return None
        return {**mark, "part": part} if part is Part.BEGIN else {"run": mark["run"], "part": part}

    # The three requests leave together: a round trip less at each end. The kernel answers them in order.
    work: list[Coroutine[Any, Any, Reply]] = [kernel.execute(code, sink=sink, mark=marked(Part.CELL))]
    if before:
        work.insert(0, kernel.execute(before, silent=True, mark=marked(Part.BEGIN)))
    if after:
        work.append(kernel.execute(after, silent=True, mark=marked(Part.END)))
    replies = await asyncio.gather(*work)
    return replies[1 if before else 0]


async def _interrupt(kernel: RankKernel) -> None:
    """Interrupt a rank; one whose worker cannot be reached is lost, and must not hold the others up."""
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
        f"{what}: no answer from {names} within {timeout:g} s. It may still run an earlier cell: wait for it, use "
        "`%cluster interrupt`, or start afresh with `%cluster stop` and `%cluster start`."
    )
