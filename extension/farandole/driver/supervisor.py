"""Keeps an elastic run going: brings its ranks together when some are lost, and takes in those that come."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from farandole.driver.elastic import Elastic
from farandole.driver.group import RankGroup, interrupt_rank
from farandole.driver.kernels import RankKernel, Reply
from farandole.driver.members import Members
from farandole.driver.output import label
from farandole.exceptions import FarandoleError, RankDiedError, RankError

MOST_FAILURES = 3
"""How many failures in a row, without a commit in between, end a run."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a supervisor waits, in seconds."""

    grace: float = 1.0
    """For ranks to notice by themselves that the world is broken."""
    leave: float = 5.0
    """For a rank to come to its waiting point once its connections are cut."""
    interrupt: float = 15.0
    """The same after an interrupt; then it is killed."""
    form: float = 60.0
    """For the ranks to form a world."""
    refill: float = 60.0
    """For new ranks, with fewer than the run must have."""
    retry: float = 15.0
    """After a failed attempt to replace a rank."""


class Staff(ABC):
    """Where a run's ranks come from, and who seats them: the cluster."""

    @abstractmethod
    async def refill(self) -> list[RankKernel]:
        """Start lost ranks anew and return all that there are, lost workers replaced."""

    @abstractmethod
    async def launch(self, kernel: RankKernel) -> asyncio.Task[Reply]:
        """Start the run's cell on a rank of the world."""

    @abstractmethod
    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> asyncio.Task[Reply]:
        """Make a new kernel a rank that lives alone for now, and start the run's cell on it."""

    @abstractmethod
    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Tell ranks that wait to form a world."""

    @abstractmethod
    async def release(self, kernels: Sequence[RankKernel]) -> None:
        """Stop the workers of ranks that have left the run."""

    @abstractmethod
    def tell(self, text: str) -> None:
        """Tell the user something, in one sentence."""

    @abstractmethod
    def seated(self, workers: Sequence[str]) -> None:
        """Note on which workers the ranks 0, 1, ... are now."""


class Supervisor:
    """Runs one cell until all its ranks have ended, with whatever ranks there are meanwhile."""

    def __init__(self, staff: Staff, group: RankGroup, options: Elastic, patience: Patience | None = None) -> None:
        self.members = Members(group, self._note_refusal)
        self._staff = staff
        self._group = group
        self._options = options
        self._patience = patience or Patience()
        self._leaving: set[RankKernel] = set()
        self._gone: set[RankKernel] = set()
        self._parting = False
        self._commits = 0
        self._failures = 0
        self._work: asyncio.Task[None] | None = None
        self._refilling: asyncio.Task[None] | None = None
        self._look_again = False
        self._releases: set[asyncio.Task[None]] = set()

    async def run(self, kernels: Sequence[RankKernel]) -> list[Reply]:
        """Execute the cell and return how it ended on each rank that saw its end.

        Raises: RankError, RankDiedError where the run cannot go on.
        """
        for kernel in kernels:
            self.members.add(kernel, await self._staff.launch(kernel), inside=True)
        self._work = asyncio.create_task(self._supervise())
        try:
            await asyncio.wait([self._work])
            if not self._work.cancelled():
                self._work.result()
        finally:
            await self._clean_up()
        # What was lost on the way and made good is none of the outcome.
        members = self.members
        return sorted(members.failed + members.lost if members.failed else members.ended, key=lambda one: one.rank)

    def stop(self) -> None:
        """Form no world any more: the user has stopped the run."""
        if self._work is not None:
            self._work.cancel()

    def take_in(self) -> None:
        """Look for ranks that the cluster has and the run has not."""
        self._look_again = True
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill())
            self._refilling.add_done_callback(lambda _: self.members.wake())

    def part_with(self, kernels: Sequence[RankKernel]) -> None:
        """Have the run go on without these ranks from its next commit on, and stop their workers then."""
        self._leaving |= set(kernels)
        self.members.dismiss([kernel for kernel in kernels if kernel not in self.members.inside])
        if not self._leaving & set(self.members.inside):
            self._send_off()
        self.members.wake()

    async def _supervise(self) -> None:
        members = self.members
        while True:
            await members.until(self._something_to_do)
            if self._refilling is not None and self._refilling.done():
                self._refilling.result()  # a bug in there must not pass unseen
            if members.failed:
                await self._end_all()
                return
            if self._over():
                return
            if self._broken():
                await self._recover()
            elif self._parting:
                self._parting = False
                await self._form(time.monotonic())
            else:
                await self._part()

    def _over(self) -> bool:
        """True once some ranks have seen the end of the cell and none is left that has not."""
        return bool(self.members.ended) and not self.members.inside

    def _something_to_do(self) -> bool:
        members = self.members
        if members.failed or not members.inside or self._broken() or self._refill_failed():
            return True
        if self._parting:
            return all(kernel in members.waiting for kernel in members.inside)
        return bool(self._newcomers() or self._leaving & set(members.inside))

    def _refill_failed(self) -> bool:
        task = self._refilling
        return task is not None and task.done() and not task.cancelled() and task.exception() is not None

    def _broken(self) -> bool:
        return bool(self.members.lost) or any(
            news["failed"] for kernel, news in self.members.waiting.items() if kernel in self.members.inside
        )

    def _newcomers(self) -> list[RankKernel]:
        stay = [kernel for kernel in self.members.inside if kernel not in self._leaving]
        return self.members.ready[: self._options.room(len(stay) + len(self.members.ready)) - len(stay)]

    async def _part(self) -> None:
        """Have all ranks leave their loops at one commit: the one after the last that any of them may have begun."""
        self._parting = True
        commits = await self.members.tell(self.members.inside, "hold")
        if commits:
            await self.members.tell(self.members.inside, "part_at", max(commits) + 1)

    async def _recover(self) -> None:
        """Go on with those that are left."""
        self._parting, began, members = False, time.monotonic(), self.members
        lost, members.lost = members.lost, []
        self.take_in()
        await self._gather_survivors()
        # Some deaths are known only now: those of others that died of it, or the one that broke the connections.
        self.take_in()
        lost, members.lost = [*lost, *members.lost], []
        why = [_loss(reply) for reply in lost] or [_break(members)]
        if not members.failed:
            self._count_failure(why)
            await self._form(began, why=why)

    async def _gather_survivors(self) -> None:
        """Bring all ranks of the broken world to their waiting point, by ever stronger means."""
        members = self.members
        await members.tell(members.inside, "say_broken")
        if await members.until(self._all_wait, self._patience.grace):
            return
        await members.tell(self._late(), "abandon")
        if await members.until(self._all_wait, self._patience.leave):
            return
        late = self._late()
        await members.tell(late, "say_broken", True)
        await asyncio.gather(*(interrupt_rank(kernel) for kernel in late))
        if not await members.until(self._all_wait, self._patience.interrupt):
            members.kill(self._late())
            await members.until(self._all_wait, self._patience.interrupt)

    def _late(self) -> list[RankKernel]:
        return [kernel for kernel in self.members.inside if kernel not in self.members.waiting]

    def _all_wait(self) -> bool:
        return bool(self.members.failed) or not self._late()

    def _count_failure(self, why: Sequence[str]) -> None:
        commits = max((news["commits"] for news in self.members.waiting.values()), default=0)
        self._failures = self._failures + 1 if commits <= self._commits else 1
        self._commits = max(commits, self._commits)
        if self._failures >= MOST_FAILURES:
            raise RankError(
                f"the run failed {self._failures} times in a row without a commit in between and was given up. The "
                f"last time {'; '.join(why)}."
            )

    async def _form(self, began: float, why: Sequence[str] = ()) -> None:
        """Form a world of all that wait, once there are enough of them."""
        members = self.members
        before = len(members.inside)
        enough = await members.until(
            lambda: self._disturbed() or self._over() or len(self._next_world()) >= self._options.min_ranks,
            began + self._patience.refill - time.monotonic(),
        )
        if not enough:
            raise _too_few(members, self._options.min_ranks, self._patience.refill, why)
        if self._disturbed() or self._over():
            return
        chosen = self._next_world()
        joined = [kernel for kernel in chosen if kernel in members.joining]
        went = [kernel for kernel in members.inside if kernel not in chosen]
        news = dict(members.waiting)
        if went:
            self._send_off()
        members.seat(chosen)
        if await self._join(chosen):
            self._announce(why, joined, went, news, before)

    def _next_world(self) -> list[RankKernel]:
        # Survivors first: of equal commits, the lowest rank's is taken.
        stay = [kernel for kernel in self.members.inside if kernel not in self._leaving]
        return [*stay, *self._newcomers()]

    async def _join(self, chosen: Sequence[RankKernel]) -> bool:
        """Have ranks form a world; False where it failed: who did not come through it waits again, or is dead."""
        members = self.members
        before = members.take_news(chosen)
        try:
            await self._staff.form(chosen)
        except FarandoleError as exc:
            for kernel in chosen:
                members.hear(kernel, before[kernel] | {"failed": True, "why": str(exc).splitlines()[0]})
            return False
        complete = await members.until(
            lambda: self._disturbed() or self._broken() or all(kernel in members.formed for kernel in chosen),
            self._patience.form,
        )
        if not complete:
            members.kill(kernel for kernel in chosen if kernel not in members.formed)
        return all(kernel in members.formed for kernel in chosen)

    def _disturbed(self) -> bool:
        return bool(self.members.lost or self.members.failed)

    def _send_off(self) -> None:
        """Forget the ranks that leave and stop their workers."""
        self.members.dismiss(self._leaving)
        self._releases.add(asyncio.create_task(self._staff.release(list(self._leaving))))
        self._gone |= self._leaving
        self._leaving = set()

    def _announce(
        self,
        why: Sequence[str],
        joined: Sequence[RankKernel],
        went: Sequence[RankKernel],
        news: dict[RankKernel, dict[str, Any]],
        before: int,
    ) -> None:
        self._staff.seated([kernel.worker.name for kernel in self.members.inside])
        size = len(self.members.inside)
        ranks = f"{size} rank{'' if size == 1 else 's'}"
        where = _where([news[kernel] for kernel in self.members.inside if kernel in news])
        told = list(why)
        if joined:
            numbers = label([kernel.rank for kernel in joined])
            told.append(f"{numbers} joined")
        if went:
            told.append(f"{len(went)} rank{'' if len(went) == 1 else 's'} left with {_names(went)}")
        self._staff.tell(f"{'; '.join(told)}: going on with {ranks} from {where}")
        if self._options.lr_rule == "linear" and before and size != before:
            self._staff.tell(f"learning rates follow the number of ranks (--lr-rule linear): now for {ranks}")

    async def _refill(self) -> None:
        """Start what is missing, until there is nothing to start; trouble is told and tried again."""
        told = ""
        while self._look_again and self.members.refused is None:
            try:
                self._look_again = False
                kernels = await self._staff.refill()
                known = {*self.members.all, *self._leaving, *self._gone}
                new = [kernel for kernel in kernels if kernel not in known]
                room = self._options.room(len(kernels)) - len(self.members.all)
                for kernel in new[: max(room, 0)]:
                    await self._admit(kernel)
            except FarandoleError as exc:
                self._look_again = True
                text = f"a lost rank could not be replaced yet, it is tried again: {str(exc).splitlines()[0]}"
                if text != told:
                    self._staff.tell(text)
                told = text
                await asyncio.sleep(self._patience.retry)

    async def _admit(self, kernel: RankKernel) -> None:
        size = len(self.members.all) + 1
        kernel.rank = size - 1
        cell = await self._staff.admit(kernel, rank=size - 1, size=size)
        self.members.add(kernel, cell, inside=False)

    def _note_refusal(self, reply: Reply) -> None:
        if reply.status == "error":
            self._staff.tell(
                f"a new rank could not join, its cell ended with {reply.ename}: {reply.evalue}; the cell has to bring "
                "all that its loop needs, since variables of earlier cells are gone with a lost rank"
            )

    async def _end_all(self) -> None:
        """Have the others end as well, once one has failed by its own fault."""
        await self.members.until(lambda: not self.members.inside, self._patience.grace)
        await self._group.release(together=True)
        await self.members.until(lambda: not self.members.inside, self._patience.grace)

    async def _clean_up(self) -> None:
        for task in (self._work, self._refilling):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
        if self._releases:
            await asyncio.wait(self._releases)
        if self._group.busy:
            await self._group.release(together=True)
            await self.members.until(lambda: not self.members.all, self._patience.grace)


def _loss(reply: Reply) -> str:
    return f"rank {reply.rank} (worker {reply.worker}) was lost: {reply.evalue}"


def _break(members: Members) -> str:
    news = next((news for kernel, news in members.waiting.items() if news["failed"] and kernel in members.inside), None)
    return f"the ranks lost their connections ({news['why'][:80] if news else 'for no reason that they know'})"


def _where(news: Sequence[dict[str, Any]]) -> str:
    newest = max(news, key=lambda one: one["commits"], default=None)
    if newest is None or newest["commits"] == 0:
        return "the beginning"
    return f"step {newest['step']}" if newest["step"] is not None else f"commit {newest['commits']}"


def _names(kernels: Sequence[RankKernel]) -> str:
    return ", ".join(sorted({f"worker {kernel.worker.name}" for kernel in kernels}))


def _too_few(members: Members, least: int, seconds: float, why: Sequence[str]) -> RankDiedError:
    left = len(members.inside)
    cause = members.refused
    reason = f" The cell ended with {cause.ename}: {cause.evalue} on a new one." if cause and cause.ename else ""
    return RankDiedError(
        f"{'; '.join(why) or 'ranks left'}; {left} rank{' is' if left == 1 else 's are'} left, fewer than the {least} "
        f"that the run must have (--min-ranks), and no new one came within {seconds:g} s, so it was given "
        f"up.{reason}"
    )
