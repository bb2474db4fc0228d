"""The ranks of an elastic run as they stand: who trains, who waits for a world, who wants to join, who has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from farandole.driver.group import RankGroup, call, interrupt_rank
from farandole.driver.kernels import RankKernel
from farandole.driver.replies import CONNECTION_LOST, Reply
from farandole.driver.staff import Patience
from farandole.protocol import Kind

ASK_SECONDS = 10.0
"""How long a rank may take to answer beside its cell; one that does not is hung."""


class Members:
    """Keeps track of ranks by what they send and how their cells end; whoever changes it wakes `until`."""

    def __init__(self, group: RankGroup, on_refusal: Callable[[Reply], None]) -> None:
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
        self.refused: Reply | None = None
        """How the cell ended on a rank that never came as far as joining."""
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
        return [kernel for kernel in self.joining if kernel in self.waiting]

    def add(self, kernel: RankKernel, cell: asyncio.Task[Reply], *, inside: bool) -> None:
        """Take in a rank on which the cell has been started."""
        (self.inside if inside else self.joining).append(kernel)
        self._cells[kernel] = cell
        cell.add_done_callback(lambda _: self._news.set())

    def seat(self, kernels: Sequence[RankKernel]) -> None:
        """Make these ranks, in their order, the world."""
        self.joining = [kernel for kernel in self.joining if kernel not in kernels]
        self.inside = list(kernels)
        self._group.seat(self.all)

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
                    await self._news.wait()
        except TimeoutError:
            return False

    async def watch(self, seconds: float) -> None:
        """Find ranks that hang for so long, again and again: a process that is stopped closes no connection."""
        while True:
            await asyncio.sleep(seconds / 3)
            await self.tell(self.inside, "identity", seconds=seconds)

    async def tell(
        self, kernels: Iterable[RankKernel], function: str, *arguments: Any, seconds: float = ASK_SECONDS
    ) -> list[Any]:
        """Call a function of `farandole.ranks.control` beside the cell; whoever does not answer is killed.

        Returns the values of those that answered.
        """
        return list((await self.ask(kernels, function, *arguments, seconds=seconds)).values())

    async def ask(
        self, kernels: Iterable[RankKernel], function: str, *arguments: Any, seconds: float = ASK_SECONDS
    ) -> dict[RankKernel, Any]:
        """Do as `tell`, and return what each rank has answered."""
        asked = list(kernels)
        replies = await asyncio.gather(*(self._ask(kernel, call(function, *arguments), seconds) for kernel in asked))
        return {kernel: reply.value for kernel, reply in zip(asked, replies, strict=True) if reply is not None}

    async def gather(self, patience: Patience) -> None:
        """Bring all ranks of a broken world to their waiting point, by ever stronger means."""
        await self.tell(self.inside, "say_broken")
        if await self.until(self._all_wait, patience.grace):
            return
        await self.tell(self._late(), "abandon")
        if await self.until(self._all_wait, patience.leave):
            return
        late = self._late()
        await self.tell(late, "say_broken", True)
        await asyncio.gather(*(interrupt_rank(kernel) for kernel in late))
        if not await self.until(self._all_wait, patience.interrupt):
            self.kill(self._late())
            await self.until(self._all_wait, patience.interrupt)

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

    async def _ask(self, kernel: RankKernel, expression: str, seconds: float) -> Reply | None:
        reply = None
        # After a restart of the proxy, say, nobody can answer for a while, and an answer may be lost: asked again.
        while reply is None or reply.ename == CONNECTION_LOST:
            await kernel.reachable()
            try:
                async with asyncio.timeout(seconds):
                    reply = await kernel.evaluate(expression, subshell=await kernel.aside())
            except TimeoutError:
                if kernel.connected:
                    self.kill([kernel])
                    return None
        if reply.status == "error":
            self.kill([kernel])
        return reply if reply.status == "ok" else None

    def _collect(self) -> None:
        for kernel, cell in list(self._cells.items()):
            if cell.done():
                self._note_end(kernel, cell.result())

    def _note_end(self, kernel: RankKernel, reply: Reply) -> None:
        joining = kernel in self.joining
        self._forget(kernel)
        if joining and reply.status != "dead":
            self.refused = reply
            self._on_refusal(reply)
        elif not joining:
            {"dead": self.lost, "error": self.failed, "ok": self.ended}[reply.status].append(reply)

    def _forget(self, kernel: RankKernel) -> None:
        self._cells.pop(kernel, None)
        for where in (self.inside, self.joining):
            if kernel in where:
                where.remove(kernel)
        self.waiting.pop(kernel, None)
        self.formed.pop(kernel, None)
