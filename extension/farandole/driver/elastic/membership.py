"""The ranks of an elastic run as they stand: who trains, who waits for a world, who wants to join, who has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from farandole.driver.elastic.host import ASK_SECONDS, ElasticTimeouts
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import DEAD, Reply, reply_of
from farandole.driver.kernels.rpc import answers, ask_in_subshell, interrupt
from farandole.protocol import Kind

T = TypeVar("T")

AGAIN_SECONDS = 5.0
"""For those that are asked once more: their answers may lie unread where the driver itself stood still."""
LOOK_SECONDS = 1.0
"""How often `until` looks without news: connections that are open again, and time that has passed, tell nothing."""


class Membership:
    """Keeps track of ranks by what they send and how their cells end; whoever changes it wakes `until`."""

    def __init__(self, group: RankGroup, on_refusal: Callable[[Reply], None]) -> None:
        """``on_refusal`` is called with how a cell ended on a rank that never came as far as joining."""
        self.inside: list[RankKernel] = []
        """The ranks of the world, in their order."""
        self.joining: list[RankKernel] = []
        """Ranks that run the cell and do not belong to the world yet."""
        self.waiting: dict[RankKernel, dict[str, Any]] = {}
        """What those said that wait for a world."""
        self.formed: dict[RankKernel, dict[str, Any]] = {}
        """What those said that have joined the last one."""
        self.lost: list[Reply] = []
        self.failed: list[Reply] = []
        self.ended: list[Reply] = []
        self.refusals: list[Reply] = []
        """How the cell ended on ranks that never came as far as joining, since one last did."""
        self._group = group
        self._on_refusal = on_refusal
        self._cells: dict[RankKernel, asyncio.Task[Reply]] = {}
        self._news = asyncio.Event()
        self._kills: set[asyncio.Task[None]] = set()

    @property
    def all(self) -> list[RankKernel]:
        """Those in the world and those that want to join."""
        return [*self.inside, *self.joining]

    @property
    def ready(self) -> list[RankKernel]:
        """Those that could join at once."""
        return [kernel for kernel in self.joining if kernel in self.waiting and kernel.connected]

    @property
    def over(self) -> bool:
        """True once some ranks have seen the end of the cell and none is left that has not."""
        return bool(self.ended) and not self.inside

    @property
    def torn(self) -> bool:
        """True where a rank of the world waits since that has failed."""
        return any(news["failed"] for kernel, news in self.waiting.items() if kernel in self.inside)

    def add(self, kernel: RankKernel, cell: asyncio.Task[Reply], *, inside: bool) -> None:
        """Take in a rank on which the cell has been started."""
        (self.inside if inside else self.joining).append(kernel)
        self._cells[kernel] = cell
        cell.add_done_callback(lambda _: self._news.set())

    def assign_ranks(self, kernels: Sequence[RankKernel]) -> None:
        """Make these ranks, in their order, the world."""
        if any(kernel in self.joining for kernel in kernels):
            self.refusals = []
        self.joining = [kernel for kernel in self.joining if kernel not in kernels]
        self.inside = list(kernels)
        self._group.assign_ranks(self.all)

    def take_news(self, kernels: Iterable[RankKernel]) -> dict[RankKernel, dict[str, Any]]:
        """Return and forget what ranks said that wait: what they say next is about their next world."""
        for kernel in kernels:
            self.formed.pop(kernel, None)
        return {kernel: self.waiting.pop(kernel) for kernel in kernels}

    def dismiss(self, kernels: Iterable[RankKernel]) -> None:
        """Forget ranks; how their cells end matters no more."""
        for kernel in kernels:
            self._forget(kernel)

    def hear(self, kernel: RankKernel, record: dict[str, Any]) -> None:
        """Take in what a rank says of itself."""
        if record.get("kind") == Kind.MEMBER:
            if record["formed"]:
                self.waiting.pop(kernel, None)
            (self.formed if record["formed"] else self.waiting)[kernel] = record
            self._news.set()

    def wake(self) -> None:
        """Have whoever is in `until` look again."""
        self._news.set()

    async def until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until the condition holds, looked at when something has changed; False when it takes too long."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    self._collect()
                    if condition():
                        return True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_SECONDS):
                            await self._news.wait()
        except TimeoutError:
            return False

    async def tell(
        self, kernels: Iterable[RankKernel], call: RankCall[T], *, seconds: float = ASK_SECONDS
    ) -> dict[RankKernel, T]:
        """Do as `ask`, and kill whoever can be reached and does not answer, or cannot do it."""
        asked = list(kernels)
        values = await self.ask(asked, call, seconds=seconds)
        late = [kernel for kernel in asked if kernel not in values and answers(kernel)]
        values |= await self.ask(late, call, seconds=AGAIN_SECONDS)
        self.kill(kernel for kernel in late if kernel not in values and answers(kernel))
        return values

    async def ask(
        self,
        kernels: Iterable[RankKernel],
        call: RankCall[T],
        *,
        seconds: float = ASK_SECONDS,
        fresh: bool = False,
    ) -> dict[RankKernel, T]:
        """Make a call beside the cell; return the values of those that answered.

        A ``fresh`` call waits for no other, such as one that blocks.
        """
        asked = list(kernels)
        replies = await asyncio.gather(*(ask_in_subshell(kernel, call, seconds, fresh=fresh) for kernel in asked))
        return {kernel: reply.value for kernel, reply in zip(asked, replies, strict=True) if reply is not None}

    async def reach(self, kernels: Sequence[RankKernel], seconds: float) -> None:
        """Wait until ranks can be reached; who cannot be for so long, while others can, is taken for lost.

        While none can be, a proxy is restarted, say, and nobody is to blame.
        """
        await self._until_one_answers(kernels)
        opened = {asyncio.create_task(kernel.reachable()): kernel for kernel in kernels}
        try:
            _, pending = await asyncio.wait(opened, timeout=seconds)
            self.kill(opened[task] for task in pending)
        finally:
            for task in opened:
                task.cancel()

    async def _until_one_answers(self, kernels: Sequence[RankKernel]) -> None:
        """Wait until one rank at least can be asked, or all are lost."""
        opened = {asyncio.create_task(kernel.reachable()) for kernel in kernels}
        pending = opened
        try:
            while pending and not self._in_reach(kernels):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in opened:
                task.cancel()

    async def gather(self, patience: ElasticTimeouts) -> None:
        """Bring all ranks of a broken world to their waiting point, by ever stronger means.

        Whoever cannot be reached is late as well: the others need not wait for it.
        """
        await self._until_one_answers(self.inside)
        while not await self._gathered(patience):
            await self._until_one_answers(self.inside)

    async def _gathered(self, patience: ElasticTimeouts) -> bool:
        """Try it once; False where at the end nobody could be asked any more."""
        asks: list[asyncio.Task[Any]] = []
        try:
            asks.append(asyncio.create_task(self.ask(self._in_reach(self.inside), rank_calls.mark_world_broken())))
            if await self.until(self._all_wait, patience.grace):
                return True
            asks.append(asyncio.create_task(self.ask(self._in_reach(self._late()), rank_calls.abandon())))
            if await self.until(self._all_wait, patience.leave):
                return True
            asks.append(asyncio.create_task(self._interrupt(patience.leave)))
            pings = {kernel: asyncio.create_task(kernel.ping()) for kernel in self._in_reach(self._late())}
            asks += pings.values()
            if not await self.until(self._all_wait, patience.interrupt):
                if not self._in_reach(self.inside):
                    return False
                await self._kill_late([kernel for kernel, ping in pings.items() if not ping.done()], patience)
            return True
        finally:
            # Said later, it would break the next world.
            for ask in asks:
                ask.cancel()
            if asks:
                await asyncio.wait(asks)

    async def _kill_late(self, silent: Sequence[RankKernel], patience: ElasticTimeouts) -> None:
        """Kill whoever has not come; who is not even heard of may take as long as ranks may be silent."""
        # What came while the driver itself stood still is read first.
        await self.until(self._all_wait, patience.grace)
        self.kill(kernel for kernel in self._late() if kernel not in silent)
        await self.until(self._all_wait, max(patience.hung - patience.interrupt, 0.0))
        self.kill(self._late())
        await self.until(self._all_wait, patience.interrupt)
        for kernel in [kernel for kernel in self._late() if not kernel.alive]:
            # What is still read of it tells nothing that a next world could wait for.
            self._cells[kernel].cancel()
            self._note_end(kernel, reply_of(DEAD, rank=kernel.rank, worker=kernel.worker.name, death=kernel.death))

    async def _interrupt(self, seconds: float) -> None:
        # Only who knows that it is no user that interrupts: others would take it for their end.
        told = await self.ask(
            self._in_reach(self._late()), rank_calls.mark_world_broken(True), seconds=seconds, fresh=True
        )
        await asyncio.gather(*(interrupt(kernel, seconds) for kernel in told if kernel not in self.waiting))

    def _in_reach(self, kernels: Iterable[RankKernel]) -> list[RankKernel]:
        return [kernel for kernel in kernels if answers(kernel)]

    def _late(self) -> list[RankKernel]:
        return [kernel for kernel in self.inside if kernel not in self.waiting]

    def _all_wait(self) -> bool:
        return bool(self.failed) or not self._late()

    def kill(self, kernels: Iterable[RankKernel]) -> None:
        """Take ranks for lost and end their processes, which nobody waits for."""
        for kernel in kernels:
            kernel.mark_dead("stopped, because it did not answer")
            task = asyncio.create_task(kernel.kill())
            self._kills.add(task)
            task.add_done_callback(self._kills.discard)

    def _collect(self) -> None:
        for kernel, cell in list(self._cells.items()):
            if cell.done():
                self._note_end(kernel, cell.result())

    def _note_end(self, kernel: RankKernel, reply: Reply) -> None:
        joining = kernel in self.joining
        self._forget(kernel)
        if joining:
            self.refusals.append(reply)
            self._on_refusal(reply)
        else:
            {"dead": self.lost, "error": self.failed, "ok": self.ended}[reply.status].append(reply)

    def _forget(self, kernel: RankKernel) -> None:
        self._cells.pop(kernel, None)
        for where in (self.inside, self.joining):
            if kernel in where:
                where.remove(kernel)
        self.waiting.pop(kernel, None)
        self.formed.pop(kernel, None)
