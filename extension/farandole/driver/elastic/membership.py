"""Membership in an elastic run: which ranks are in the world, joining, waiting for a world, or done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from farandole.driver.elastic.host import CALL_SECONDS, ElasticTimeouts
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rank_calls import RankCall
from farandole.driver.kernels.replies import DEAD, Reply, reply_of
from farandole.driver.kernels.rpc import answers, ask_in_subshell, interrupt
from farandole.protocol import Kind

T = TypeVar("T")

SECOND_CALL_SECONDS = 5.0
"""How many seconds a repeated call may take. Repeating the call helps if the driver itself was suspended. In that case,
the answers have already arrived."""
RECHECK_SECONDS = 1.0
"""How often `wait_until` checks its condition when no event wakes it: a restored connection and a passed deadline raise
no event."""


class Membership:
    """Tracks the ranks of an elastic run by their membership reports and the ends of their cells.

    Each report and each end of a cell wakes `wait_until`.
    """

    def __init__(self, group: RankGroup, on_refusal: Callable[[Reply], None]) -> None:
        """Start without ranks; ``on_refusal`` is called if the cell of a new rank ends before the rank has joined."""
        self.world: list[RankKernel] = []
        """The ranks of the current world, in order."""
        self.joining: list[RankKernel] = []
        """Ranks that run the cell but do not yet belong to a world."""
        self.waiting: dict[RankKernel, dict[str, Any]] = {}
        """Ranks that are waiting for a world, with their reports."""
        self.formed: dict[RankKernel, dict[str, Any]] = {}
        """Ranks that have joined the current world, with their reports."""
        self.commits = 0
        """The number of commits from which a rank of the current world says that it has continued."""
        self.lost: list[Reply] = []
        self.failed: list[Reply] = []
        self.ended: list[Reply] = []
        self.refusals: list[Reply] = []
        """The outcomes of new ranks whose cells ended before the ranks joined. Cleared when a new rank joins."""
        self._group = group
        self._on_refusal = on_refusal
        self._cells: dict[RankKernel, asyncio.Task[Reply]] = {}
        self._changed = asyncio.Event()
        self._kills: set[asyncio.Task[None]] = set()

    @property
    def all(self) -> list[RankKernel]:
        """The ranks of the world, followed by the joining ranks."""
        return [*self.world, *self.joining]

    @property
    def ready(self) -> list[RankKernel]:
        """The joining ranks that are connected and waiting for a world."""
        return [kernel for kernel in self.joining if kernel in self.waiting and kernel.connected]

    @property
    def over(self) -> bool:
        """Whether the cell has ended on all ranks of the world."""
        return bool(self.ended) and not self.world

    @property
    def broken(self) -> bool:
        """Whether a rank of the world reports that the world has failed."""
        return any(self.waiting[kernel]["failed"] for kernel in self.world if kernel in self.waiting)

    def add(self, kernel: RankKernel, cell: asyncio.Task[Reply], *, in_world: bool) -> None:
        """Start tracking a rank on which the cell has been started."""
        (self.world if in_world else self.joining).append(kernel)
        self._cells[kernel] = cell
        cell.add_done_callback(lambda _: self._changed.set())

    def assign_ranks(self, kernels: Sequence[RankKernel]) -> None:
        """Make these ranks the world, numbered in this order."""
        if any(kernel in self.joining for kernel in kernels):
            self.refusals = []
        self.joining = [kernel for kernel in self.joining if kernel not in kernels]
        self.world = list(kernels)
        self._group.assign_ranks(self.all)

    def pop_news(self, kernels: Iterable[RankKernel]) -> dict[RankKernel, dict[str, Any]]:
        """Return and forget the reports of waiting ranks, because later reports will be about the next world."""
        for kernel in kernels:
            self.formed.pop(kernel, None)
        return {kernel: self.waiting.pop(kernel) for kernel in kernels}

    def update(self, kernel: RankKernel, record: dict[str, Any]) -> None:
        """Process a message from a rank. Only membership reports have an effect."""
        if record.get("kind") == Kind.MEMBER:
            if record["formed"]:
                self.waiting.pop(kernel, None)
                self.commits = record["commits"]
            (self.formed if record["formed"] else self.waiting)[kernel] = record
            self._changed.set()

    def wake(self) -> None:
        """Make `wait_until` check its condition now."""
        self._changed.set()

    async def wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until the condition is true; return False if that takes longer than ``seconds``."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    # The event is cleared before the check so that no change during the check is missed.
                    self._changed.clear()
                    self._collect()
                    if condition():
                        return True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(RECHECK_SECONDS):
                            await self._changed.wait()
        except TimeoutError:
            return False

    async def call(
        self, kernels: Iterable[RankKernel], call: RankCall[T], *, seconds: float = CALL_SECONDS, fresh: bool = False
    ) -> dict[RankKernel, T]:
        """Call ranks while their cell is running, and return the values from the ranks that answered.

        A ``fresh`` call gets its own subshell, so it does not queue behind a call that blocks.
        """
        called = list(kernels)
        replies = await asyncio.gather(*(ask_in_subshell(kernel, call, seconds, fresh=fresh) for kernel in called))
        return {kernel: reply.value for kernel, reply in zip(called, replies, strict=True) if reply is not None}

    async def call_or_kill(
        self, kernels: Iterable[RankKernel], call: RankCall[T], *, seconds: float = CALL_SECONDS
    ) -> dict[RankKernel, T]:
        """Make a call, repeat it for ranks that did not answer, and kill connected ranks that still do not answer."""
        called = list(kernels)
        values = await self.call(called, call, seconds=seconds)
        late = [kernel for kernel in called if kernel not in values and answers(kernel)]
        values |= await self.call(late, call, seconds=SECOND_CALL_SECONDS)
        self.kill(kernel for kernel in late if kernel not in values and answers(kernel))
        return values

    async def reach(self, kernels: Sequence[RankKernel], seconds: float) -> None:
        """Wait until all ranks are connected. Kill ranks that are not connected ``seconds`` after the first one.

        No rank is killed while all are disconnected, because a restart of the proxy is the most likely cause.
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
        """Wait until at least one rank is connected or all ranks are lost."""
        opened = {asyncio.create_task(kernel.reachable()) for kernel in kernels}
        pending = opened
        try:
            while pending and not _connected(kernels):
                _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in opened:
                task.cancel()

    async def gather(self, timeouts: ElasticTimeouts) -> None:
        """Bring all ranks of a broken world to the point where they wait for a new one, and kill unreachable ranks."""
        await self._until_one_answers(self.world)
        while not await self._gathered(timeouts):
            await self._until_one_answers(self.world)

    async def _gathered(self, timeouts: ElasticTimeouts) -> bool:
        """Escalate until all ranks are waiting; return False if no rank is connected at the end.

        1. Mark the world as broken, so that ranks leave their loops at the next commit or error.
        2. Close the connections of the late ranks, which unblocks their collectives.
        3. Interrupt the late ranks.
        4. Kill the late ranks.
        """
        calls: list[asyncio.Task[Any]] = []
        try:
            calls.append(asyncio.create_task(self.call(_connected(self.world), rank_calls.mark_world_broken())))
            if await self.wait_until(self._all_wait, timeouts.grace):
                return True
            calls.append(asyncio.create_task(self.call(_connected(self._late()), rank_calls.abandon())))
            if await self.wait_until(self._all_wait, timeouts.abandon):
                return True
            calls.append(asyncio.create_task(self._interrupt(timeouts.abandon)))
            pings = {kernel: asyncio.create_task(kernel.ping()) for kernel in _connected(self._late())}
            calls += pings.values()
            if not await self.wait_until(self._all_wait, timeouts.interrupt):
                if not _connected(self.world):
                    return False
                await self._kill_late([kernel for kernel, ping in pings.items() if not ping.done()], timeouts)
            return True
        finally:
            # A call that reached its rank any later would break the next world.
            for call in calls:
                call.cancel()
            if calls:
                await asyncio.wait(calls)

    async def _kill_late(self, silent: Sequence[RankKernel], timeouts: ElasticTimeouts) -> None:
        """Kill late ranks. A rank that did not answer a ping is killed only after the full `hung` timeout."""
        # If the driver itself was suspended, the ranks' messages have already arrived and only need to be processed.
        await self.wait_until(self._all_wait, timeouts.grace)
        self.kill(kernel for kernel in self._late() if kernel not in silent)
        await self.wait_until(self._all_wait, max(timeouts.hung - timeouts.interrupt, 0.0))
        self.kill(self._late())
        await self.wait_until(self._all_wait, timeouts.interrupt)
        for kernel in [kernel for kernel in self._late() if not kernel.alive]:
            # The journal of this dead rank is still being read, but the next world need not wait for its end.
            self._cells[kernel].cancel()
            self._note_end(kernel, reply_of(DEAD, rank=kernel.rank, worker=kernel.worker.name, death=kernel.death))

    async def _interrupt(self, seconds: float) -> None:
        # Interrupt only ranks that know that the user did not send the interrupt; any other rank would end its cell.
        warned = await self.call(
            _connected(self._late()), rank_calls.mark_world_broken(True), seconds=seconds, fresh=True
        )
        await asyncio.gather(*(interrupt(kernel, seconds) for kernel in warned if kernel not in self.waiting))

    def _late(self) -> list[RankKernel]:
        return [kernel for kernel in self.world if kernel not in self.waiting]

    def _all_wait(self) -> bool:
        return bool(self.failed) or not self._late()

    def kill(self, kernels: Iterable[RankKernel]) -> None:
        """Mark ranks as lost, and end their processes in the background."""
        for kernel in kernels:
            kernel.mark_dead("stopped, because it did not answer")
            # asyncio holds only weak references to tasks, so the set keeps this one alive.
            task = asyncio.create_task(kernel.kill())
            self._kills.add(task)
            task.add_done_callback(self._kills.discard)

    def forget(self, kernels: Iterable[RankKernel]) -> None:
        """Stop tracking ranks, and ignore how their cells end."""
        for kernel in kernels:
            self._cells.pop(kernel, None)
            for group in (self.world, self.joining):
                if kernel in group:
                    group.remove(kernel)
            self.waiting.pop(kernel, None)
            self.formed.pop(kernel, None)

    def _collect(self) -> None:
        for kernel, cell in list(self._cells.items()):
            if cell.done():
                self._note_end(kernel, cell.result())

    def _note_end(self, kernel: RankKernel, reply: Reply) -> None:
        joining = kernel in self.joining
        self.forget([kernel])
        if joining:
            self.refusals.append(reply)
            self._on_refusal(reply)
        else:
            {"dead": self.lost, "error": self.failed, "ok": self.ended}[reply.status].append(reply)


def _connected(kernels: Iterable[RankKernel]) -> list[RankKernel]:
    return [kernel for kernel in kernels if answers(kernel)]
