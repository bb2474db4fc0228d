"""Keeps an elastic run going: brings its ranks together when some are lost, and takes in those that come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.elastic.membership import Membership
from farandole.driver.elastic.messages import Change, count, loss, refusal, torn
from farandole.driver.elastic.rendezvous import Rendezvous
from farandole.driver.elastic.replacement import Replacer
from farandole.driver.elastic.restart_policy import Failures
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import Liveness
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.output import label


class ElasticAgent:
    """Runs one cell until all its ranks have ended, with whatever ranks there are meanwhile."""

    def __init__(
        self, staff: ElasticHost, group: RankGroup, options: Elastic, patience: ElasticTimeouts | None = None
    ) -> None:
        self.members = Membership(group, self._note_refusal)
        self._staff = staff
        self._group = group
        self._options = options
        self._patience = patience or ElasticTimeouts(hung=options.hung)
        self._recruiter = Replacer(staff, self.members, options, self._patience)
        self._forming = Rendezvous(staff, self.members, options, self._patience)
        self._parting = False
        self._first_parted: float | None = None
        self._why: list[str] = []
        """Why the next world differs from the last, as far as that is no wish of the user's."""
        self._failures = Failures(self._patience.refill)
        self._size = 0
        self._work: asyncio.Task[None] | None = None

    async def run(self, kernels: Sequence[RankKernel]) -> list[Reply]:
        """Execute the cell and return how it ended on each rank that saw its end.

        Raises: RankError, RankDiedError where the run cannot go on.
        """
        for kernel in kernels:
            self.members.add(kernel, await self._staff.launch(kernel), inside=True)
        return await self.lead()

    async def lead(self) -> list[Reply]:
        """Keep going what the members run, from wherever they stand; return and raise as `run`."""
        self._size = len(self.members.inside)
        self._parting = any(kernel in self.members.waiting for kernel in self.members.inside)
        self._work = asyncio.create_task(self._supervise())
        watch = asyncio.create_task(self._lookout().run())
        try:
            await asyncio.wait([self._work])
            if not self._work.cancelled():
                self._work.result()
        finally:
            watch.cancel()
            await self._clean_up()
        # What was lost on the way and made good is none of the outcome.
        members = self.members
        return sorted(members.failed + members.lost if members.failed else members.ended, key=lambda one: one.rank)

    def _lookout(self) -> Liveness:
        members = self.members
        hung = self._patience.hung
        return Liveness(
            lambda: members.all, self._staff.tell, seconds=hung, give_up=lambda kernel: members.kill([kernel])
        )

    def stop(self) -> None:
        """Form no world any more: the user has stopped the run."""
        if self._work is not None:
            self._work.cancel()

    def take_in(self) -> None:
        """Look for ranks that the cluster has and the run has not."""
        self._recruiter.look()

    def try_again(self) -> None:
        """Do as `take_in`, also where new ranks have failed to join so often that no other was tried."""
        self.members.refusals = []
        self.take_in()

    def part_with(self, kernels: Sequence[RankKernel]) -> None:
        """Have the run go on without these ranks from its next commit on, and stop their workers then."""
        self._forming.leaving |= set(kernels)
        self._recruiter.exclude(kernels)
        self.members.dismiss([kernel for kernel in kernels if kernel not in self.members.inside])
        if not self._forming.leaving & set(self.members.inside):
            self._send_off()
        self.members.wake()

    async def _supervise(self) -> None:
        members = self.members
        while True:
            await members.until(self._something_to_do)
            if self._recruiter.trouble is not None:
                raise self._recruiter.trouble
            if members.failed:
                await self._end_all()
                return
            if members.over:
                return
            if self._broken():
                await self._recover()
            elif self._parting:
                self._parting, self._first_parted = False, None
                await self._form(time.monotonic())
            else:
                await self._part()

    def _something_to_do(self) -> bool:
        members = self.members
        if members.failed or not members.inside or self._broken() or self._recruiter.trouble is not None:
            return True
        if self._parting:
            return all(kernel in members.waiting for kernel in members.inside)
        # Whoever cannot be reached now would not hear where to part.
        together = all(kernel.connected for kernel in members.inside)
        return together and bool(self._forming.newcomers or self._forming.leaving & set(members.inside))

    def _broken(self) -> bool:
        return bool(self.members.lost or self._forming.torn) or self.members.torn or self._overdue()

    def _overdue(self) -> bool:
        """True where a rank does not part long after another has: it was not told, say, by a driver that died."""
        parted = [kernel for kernel in self.members.inside if kernel in self.members.waiting]
        if not self._parting or not parted:
            return False
        self._first_parted = self._first_parted or time.monotonic()
        if time.monotonic() - self._first_parted <= self._patience.part or len(parted) == len(self.members.inside):
            return False
        late = label([kernel.rank for kernel in self.members.inside if kernel not in parted])
        self._forming.torn = f"{late} did not part from the others within {self._patience.part:g} s"
        return True

    async def _part(self) -> None:
        """Have all ranks leave their loops at one commit: the one after the last that any of them may have begun."""
        began, patience, members = time.monotonic(), self._patience, self.members
        commits = await members.tell(members.inside, rank_calls.pause_at_next_commit(), seconds=patience.ask)
        # After long the first to answer may hold no more: asked again.
        if commits and time.monotonic() - began <= patience.hold:
            self._parting = True
            await members.tell(
                members.inside, rank_calls.leave_at_commit(max(commits.values()) + 1), seconds=patience.ask
            )

    async def _recover(self) -> None:
        """Go on with those that are left."""
        self._parting, self._first_parted, began, members = False, None, time.monotonic(), self.members
        (lost, members.lost), (reason, self._forming.torn) = (members.lost, []), (self._forming.torn, "")
        self.take_in()
        await members.gather(self._patience)
        # Some deaths are known only now: those of others that died of it, or the one that broke the connections.
        self.take_in()
        lost, members.lost = [*lost, *members.lost], []
        # What no world was told of yet comes before how an attempt to form one failed.
        self._why = [*self._why, *map(loss, lost)] or [reason or torn(members)]
        if not members.failed:
            if self._failures.forming:
                await members.until(lambda: self._forming.disturbed, self._patience.grace)
            await self._form(began, failed=True)

    async def _form(self, began: float, *, failed: bool = False) -> None:
        """Form a world of all that wait, once there are enough of them."""
        members, forming = self.members, self._forming
        await forming.wait_for_enough(self._why, began + self._patience.refill - time.monotonic())
        if forming.disturbed or members.over:
            return
        chosen = forming.next_world
        joined = [kernel for kernel in chosen if kernel in members.joining]
        went = [kernel for kernel in members.inside if kernel not in chosen]
        news = dict(members.waiting)
        if failed:
            self._failures.note_failure(max(news[kernel]["commits"] for kernel in chosen), self._why)
        if went:
            self._send_off()
        members.assign_ranks(chosen)
        formed = await forming.join(chosen)
        self._failures.note_attempt(formed=formed)
        if formed:
            self._announce(Change(why=self._why, joined=joined, went=went, news=news))
            self._why = []

    def _send_off(self) -> None:
        """Forget the ranks that leave and stop their workers."""
        self.members.dismiss(self._forming.leaving)
        self._recruiter.release(self._forming.leaving)
        self._forming.leaving = set()

    def _announce(self, change: Change) -> None:
        inside = self.members.inside
        self._staff.seated([kernel.worker.name for kernel in inside])
        self._staff.tell(change.text(inside))
        if self._options.lr_rule == "linear" and len(inside) != self._size:
            self._staff.tell(
                f"learning rates follow the number of ranks (--lr-rule linear): now for {count(len(inside))}"
            )
        self._size = len(inside)

    def _note_refusal(self, reply: Reply) -> None:
        self._staff.tell(refusal(reply, last=self._recruiter.gives_up))
        self.take_in()

    async def _end_all(self) -> None:
        """Have the others end as well, once one has failed by its own fault."""
        await self.members.until(lambda: not self.members.inside, self._patience.grace)
        await self._release()
        await self.members.until(lambda: not self.members.inside, self._patience.grace)

    async def _clean_up(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work])
        await self._recruiter.close()
        if self._group.busy:
            await self._release()
            await self.members.until(lambda: not self.members.all, self._patience.grace)

    async def _release(self) -> None:
        # That those who wait to join end now is no fault of theirs.
        self.members.dismiss(list(self.members.joining))
        await self._group.release(together=True)
