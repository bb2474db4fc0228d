"""The agent of an elastic run, which forms a new world whenever ranks are lost, join or leave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.elastic.membership import Membership
from farandole.driver.elastic.messages import Change, connection_loss, count, loss, losses, refusal
from farandole.driver.elastic.rendezvous import Rendezvous
from farandole.driver.elastic.replacement import Replacer
from farandole.driver.elastic.restart_policy import RestartPolicy
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import Liveness
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.output import label


class ElasticAgent:
    """Runs one cell to its end on a changing set of ranks.

    A single task, `_supervise`, makes all changes. The other tasks only report events that wake it:

    - Ranks are lost or lose their connections: the agent gathers the remaining ranks and forms a world from them.
    - New ranks are ready, or ranks have to leave: all ranks leave their loops at the same commit and form a new world.
    - The cell itself fails on a rank: the agent ends the cell on all ranks.
    """

    def __init__(
        self, host: ElasticHost, group: RankGroup, options: Elastic, timeouts: ElasticTimeouts | None = None
    ) -> None:
        self.membership = Membership(group, self._note_refusal)
        self._host = host
        self._group = group
        self._options = options
        self._timeouts = timeouts or ElasticTimeouts(hung=options.hung)
        self._replacer = Replacer(host, self.membership, options, self._timeouts)
        self._rendezvous = Rendezvous(host, self.membership, options, self._timeouts)
        self._restart_policy = RestartPolicy(self._timeouts.replacement)
        self._leaving_loops = False
        """Whether the ranks have been told at which commit they leave their loops for a new world."""
        self._first_left: float | None = None
        """The monotonic time at which the agent noticed that a first rank had left its loop and was waiting."""
        self._causes: list[str] = []
        """The failures to report to the user when the next world has formed."""
        self._left: list[RankKernel] = []
        """The ranks that have left since the last world, because they ended when all ranks left their loops."""
        self._size = 0
        self._awaited = 0
        """The number of ranks that the next world waits for if they share a model."""
        self._work: asyncio.Task[None] | None = None

    async def run(self, kernels: Sequence[RankKernel]) -> list[Reply]:
        """Execute the cell, and return its outcomes in rank order.

        If the cell failed on a rank, these are the outcomes on the failed and lost ranks. Otherwise, they are the
        outcomes on the ranks that reached the end.

        Raises:
            RankError, RankDiedError: the run cannot continue.
        """
        for kernel in kernels:
            self.membership.add(kernel, await self._host.launch(kernel), in_world=True)
        return await self.lead()

    async def lead(self) -> list[Reply]:
        """Supervise a cell that is already running on the members, with the same result and errors as `run`."""
        members = self.membership
        self._size = self._awaited = len(members.world)
        self._leaving_loops = any(kernel in members.waiting for kernel in members.world)
        self._work = asyncio.create_task(self._supervise())
        liveness = asyncio.create_task(self._liveness().run())
        try:
            await asyncio.wait([self._work])
            if not self._work.cancelled():
                self._work.result()
        finally:
            liveness.cancel()
            await self._clean_up()
        # The outcome contains no ranks that were lost and replaced.
        return sorted(members.failed + members.lost if members.failed else members.ended, key=lambda one: one.rank)

    def _liveness(self) -> Liveness:
        members = self.membership
        return Liveness(
            lambda: members.all,
            self._host.notify,
            seconds=self._timeouts.hung,
            give_up=lambda kernel: members.kill([kernel]),
        )

    def stop(self) -> None:
        """Stop supervising the run at the user's request."""
        if self._work is not None:
            self._work.cancel()

    def admit_new_ranks(self) -> None:
        """Replace lost ranks, and admit the cluster's ranks that are not yet part of the run."""
        self._replacer.check()

    def retry_new_ranks(self) -> None:
        """Call `admit_new_ranks` again even if replacement has stopped because too many new ranks failed to join."""
        self.membership.refusals = []
        self.admit_new_ranks()

    def remove(self, kernels: Sequence[RankKernel]) -> None:
        """Continue without these ranks from the next commit, and then stop their workers."""
        members, leaving = self.membership, self._rendezvous.leaving
        leaving.update(kernels)
        self._replacer.exclude(kernels)
        members.forget([kernel for kernel in kernels if kernel not in members.world])
        if not leaving & set(members.world):
            self._release_leaving()
        members.wake()

    async def _supervise(self) -> None:
        members = self.membership
        while True:
            await members.wait_until(self._action_needed)
            if self._replacer.error is not None:
                raise self._replacer.error
            if members.failed:
                await self._end_all()
                return
            if members.over:
                return
            if self._broken():
                await self._recover()
            elif self._leaving_loops:
                self._leaving_loops, self._first_left = False, None
                await self._form(time.monotonic())
            else:
                await self._leave_loops()

    def _action_needed(self) -> bool:
        members = self.membership
        if members.failed or not members.world or self._broken() or self._replacer.error is not None:
            return True
        if self._leaving_loops:
            return all(kernel in members.waiting for kernel in members.world)
        # All ranks have to be connected because an unreachable rank would not learn at which commit to leave.
        connected = all(kernel.connected for kernel in members.world)
        return connected and bool(self._rendezvous.newcomers or self._rendezvous.leaving & set(members.world))

    def _broken(self) -> bool:
        members = self.membership
        return bool(members.lost or self._rendezvous.failure) or members.broken or self._overdue()

    def _overdue(self) -> bool:
        """Return whether a rank is still in its loop long after another rank has left.

        Most likely the previous driver died before it could send that rank the commit at which to leave.
        """
        waiting = [kernel for kernel in self.membership.world if kernel in self.membership.waiting]
        if not self._leaving_loops or not waiting:
            return False
        self._first_left = self._first_left or time.monotonic()
        late = [kernel.rank for kernel in self.membership.world if kernel not in waiting]
        if not late or time.monotonic() - self._first_left <= self._timeouts.leave:
            return False
        self._rendezvous.failure = f"{label(late)} did not leave the loop within {self._timeouts.leave:g} s"
        return True

    async def _leave_loops(self) -> None:
        """Make all ranks leave their loops at the same commit.

        Each rank returns its number of commits, and then holds its next commit until it learns at which commit to
        leave. That is the commit after the highest number returned.
        """
        began, timeouts, members = time.monotonic(), self._timeouts, self.membership
        commits = await members.call_or_kill(members.world, rank_calls.pause_at_next_commit(), seconds=timeouts.call)
        # If the answers took too long, the first rank may no longer be holding its commit. All are asked again later.
        if commits and time.monotonic() - began <= timeouts.pause:
            self._leaving_loops, self._awaited = True, len(self._rendezvous.next_world)
            leave = rank_calls.leave_at_commit(max(commits.values()) + 1)
            await members.call_or_kill(members.world, leave, seconds=timeouts.call)

    async def _recover(self) -> None:
        """Gather the surviving ranks of a broken world and form a new world."""
        leaving_loops, self._leaving_loops, self._first_left = self._leaving_loops, False, None
        began, members, rendezvous = time.monotonic(), self.membership, self._rendezvous
        (lost, members.lost), (failure, rendezvous.failure) = (members.lost, []), (rendezvous.failure, "")
        if not leaving_loops:
            self._awaited -= len(rendezvous.leaving)
        if not rendezvous.leaving:  # otherwise, ranks whose workers are to be stopped would be replaced, too
            self.admit_new_ranks()
        await members.gather(self._timeouts)
        self._release_lost()
        # More deaths may be known by now: deaths caused by the first one, or the death that broke the connections.
        self.admit_new_ranks()
        lost, members.lost = [*lost, *members.lost], []
        # If no world has formed since an earlier failure, report that failure's cause instead of the failed attempt's.
        others = [loss(lost[0])] if lost else [failure or connection_loss(members)]
        # Ranks that share a model end when they leave their loops, which is no failure.
        self._causes = [*self._causes, *losses(lost)] or ([] if leaving_loops and lost else others)
        if not members.failed:
            if self._restart_policy.forming_failed:
                await members.wait_until(lambda: rendezvous.disturbed, self._timeouts.grace)
            await self._form(began, failed=bool(self._causes))

    async def _form(self, began: float, *, failed: bool = False) -> None:
        """Wait until there are enough ranks, and form the next world from them.

        Return early if a rank is lost, the cell fails on a rank, or the cell ends.
        """
        members, rendezvous = self.membership, self._rendezvous
        seconds = began + self._timeouts.replacement - time.monotonic()
        await rendezvous.wait_for_enough(self._causes, seconds, size=self._awaited)
        if rendezvous.disturbed or members.over:
            return
        chosen = rendezvous.next_world
        joined = [kernel for kernel in chosen if kernel in members.joining]
        left = [kernel for kernel in members.world if kernel not in chosen]
        news = dict(members.waiting)
        if failed:
            self._restart_policy.note_failure(self._next_commits(chosen), self._causes)
        if left:
            self._release_leaving()
        members.assign_ranks(chosen)
        formed = await rendezvous.form(chosen)
        self._restart_policy.note_attempt(formed=formed)
        if formed:
            self._announce(Change(causes=self._causes, joined=joined, left=[*self._left, *left], news=news))
            self._causes, self._left = [], []

    def _next_commits(self, chosen: Sequence[RankKernel]) -> int:
        """Return the number of commits from which the next world continues, as far as it is known."""
        news = [self.membership.waiting[kernel] for kernel in chosen]
        # Ranks that share a model may find their checkpoint only later. Then it is that of the last world.
        known = self.membership.commits if any(one.get("together") for one in news) else 0
        return max(one["commits"] for one in news) or known

    def _release_lost(self) -> None:
        """Stop the workers of leaving ranks that have ended, as ranks that share a model do."""
        leaving = self._rendezvous.leaving
        if leaving and not leaving & set(self.membership.world):
            self._left += sorted(leaving, key=lambda kernel: kernel.rank)
            self._release_leaving()

    def _release_leaving(self) -> None:
        """Stop tracking the ranks that leave the run, and stop their workers."""
        self.membership.forget(self._rendezvous.leaving)
        self._replacer.release(self._rendezvous.leaving)
        self._rendezvous.leaving = set()

    def _announce(self, change: Change) -> None:
        world = self.membership.world
        self._host.assigned([kernel.worker.name for kernel in world])
        self._host.notify(change.text(world), warning=bool(change.causes))
        if self._options.lr_rule == "linear" and len(world) != self._size:
            self._host.notify(
                f"learning rates follow the number of ranks (--lr-rule linear): now for {count(len(world))}"
            )
        self._size = self._awaited = len(world)

    def _note_refusal(self, reply: Reply) -> None:
        self._host.notify(refusal(reply, last=self._replacer.gives_up), warning=True)
        self.admit_new_ranks()

    async def _end_all(self) -> None:
        """End the cell on all ranks after it has failed on one."""
        members = self.membership
        await members.wait_until(lambda: not members.world, self._timeouts.grace)
        await self._release()
        await members.wait_until(lambda: not members.world, self._timeouts.grace)

    async def _clean_up(self) -> None:
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work])
        await self._replacer.close()
        if self._group.busy:
            await self._release()
            await self.membership.wait_until(lambda: not self.membership.all, self._timeouts.grace)

    async def _release(self) -> None:
        # Joining ranks are forgotten first so that the end of their cells is not reported as a failure to join.
        self.membership.forget(list(self.membership.joining))
        await self._group.release(together=True)
