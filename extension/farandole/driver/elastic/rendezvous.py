"""Forms the next world of an elastic run from the ranks that are waiting for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.elastic.membership import Membership
from farandole.driver.elastic.messages import too_few
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.rpc import answers
from farandole.driver.options import Elastic
from farandole.exceptions import FarandoleError


class Rendezvous:
    """Chooses the ranks of the next world and makes them form it."""

    def __init__(self, host: ElasticHost, membership: Membership, options: Elastic, timeouts: ElasticTimeouts) -> None:
        self.leaving: set[RankKernel] = set()
        """Ranks that leave the run and will not be part of any later world."""
        self.failure = ""
        """Why the ranks have to be gathered, if the cause is neither a lost rank nor a failure that a rank reported."""
        self._host = host
        self._membership = membership
        self._options = options
        self._timeouts = timeouts

    @property
    def disturbed(self) -> bool:
        """Whether a rank was lost or its cell failed, so that the chosen ranks cannot form a world."""
        return bool(self._membership.lost or self._membership.failed)

    @property
    def newcomers(self) -> list[RankKernel]:
        """The new ranks that could join now, limited by the run's maximum number of ranks."""
        ready = self._membership.ready
        stay = len(self._stay)
        return ready[: self._options.room(stay + len(ready)) - stay]

    @property
    def next_world(self) -> list[RankKernel]:
        """The ranks that would make up a world formed now.

        Surviving ranks come first, because the state comes from the lowest-numbered of the ranks with the most commits.
        """
        return [*self._stay, *self.newcomers]

    @property
    def _stay(self) -> list[RankKernel]:
        return [kernel for kernel in self._membership.world if kernel not in self.leaving]

    async def wait_for_enough(self, causes: Sequence[str], seconds: float, *, size: int) -> None:
        """Wait until there are enough ranks for a world, a rank is lost or has failed, or the cell has ended.

        Enough is the minimum number of ranks. If all ranks began the cell again because they share a model, it is
        ``size``, or all that have begun the cell if they are more, because each rank that joins later makes all of them
        begin again. After the timeout, the minimum number is enough.

        Raises:
            RankDiedError: there are too few ranks after the timeout; ``causes`` says why the others were lost.
        """
        members, least = self._membership, self._options.min_ranks
        await members.wait_until(
            lambda: self.disturbed or members.over or len(self.next_world) >= self._wanted(size), seconds
        )
        if not (self.disturbed or members.over or len(self.next_world) >= least):
            raise too_few(members, least, self._timeouts.replacement, causes)

    def _wanted(self, size: int) -> int:
        least, members = self._options.min_ranks, self._membership
        together = any(
            members.waiting[kernel].get("together") for kernel in self.next_world if kernel in members.waiting
        )
        return max(least, self._options.room(max(size, len(members.all)))) if together else least

    async def form(self, chosen: Sequence[RankKernel]) -> bool:
        """Make ranks form a world; return False on failure, and set `failure` if no rank reports the cause."""
        members = self._membership
        await members.reach(chosen, self._timeouts.interrupt)
        before = members.pop_news(chosen)
        try:
            await self._host.form(chosen)
        except FarandoleError as exc:
            why = str(exc).splitlines()[0]
            self.failure = f"the ranks could not form a world ({why})"
            await self._restore_waiting(before, why)
            return False
        complete = await members.wait_until(
            lambda: self.disturbed or members.broken or all(kernel in members.formed for kernel in chosen),
            self._timeouts.form,
        )
        if not complete:
            # The ranks are not killed: perhaps only the link between two of them is down, and they hold all commits.
            # The agent gathers them and kills only those that do not begin to wait again.
            self.failure = f"the ranks did not form a world within {self._timeouts.form:g} s"
        return all(kernel in members.formed for kernel in chosen)

    async def _restore_waiting(self, before: dict[RankKernel, dict[str, Any]], why: str) -> None:
        """After a failed attempt, ask the ranks whether they are still waiting, and restore the reports of those ranks.

        Ranks that do not answer, or are not waiting, count as late.
        """
        members = self._membership
        replies = await members.call(filter(answers, before), rank_calls.waits(), seconds=self._timeouts.abandon)
        for kernel, waits in replies.items():
            if waits and kernel not in members.waiting:
                members.update(kernel, before[kernel] | {"failed": True, "why": why})
