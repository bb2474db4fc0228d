"""How the ranks of an elastic run that wait become its next world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.elastic.membership import Membership
from farandole.driver.elastic.messages import too_few
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.options import Elastic
from farandole.exceptions import FarandoleError


class Rendezvous:
    """Chooses who belongs to the next world and has them form it; the supervisor says when."""

    def __init__(self, staff: ElasticHost, members: Membership, options: Elastic, patience: ElasticTimeouts) -> None:
        self.leaving: set[RankKernel] = set()
        """The ranks that no world is to have any more."""
        self.torn = ""
        """Why the ranks have to be brought together although nobody is lost and none has said that it failed."""
        self._staff = staff
        self._members = members
        self._options = options
        self._patience = patience

    @property
    def disturbed(self) -> bool:
        """True where no world can be formed of those that there are: some are lost, or have failed by themselves."""
        return bool(self._members.lost or self._members.failed)

    @property
    def newcomers(self) -> list[RankKernel]:
        """The new ranks that could join now, as many as there may be."""
        ready = self._members.ready
        stay = len(self._stay)
        return ready[: self._options.room(stay + len(ready)) - stay]

    @property
    def next_world(self) -> list[RankKernel]:
        """Who would belong to it now; survivors first: of equal commits, the lowest rank's is taken."""
        return [*self._stay, *self.newcomers]

    @property
    def _stay(self) -> list[RankKernel]:
        return [kernel for kernel in self._members.inside if kernel not in self.leaving]

    async def wait_for_enough(self, why: Sequence[str], seconds: float) -> None:
        """Wait until there are enough ranks, or none are wanted any more; ``why`` is what they were lost of.

        Raises: RankDiedError where that takes too long.
        """
        members, least = self._members, self._options.min_ranks
        if not await members.until(
            lambda: self.disturbed or members.over or len(self.next_world) >= least,
            seconds,
        ):
            raise too_few(members, least, self._patience.refill, why)

    async def join(self, chosen: Sequence[RankKernel]) -> bool:
        """Have ranks form a world; False where it failed: who did not come through it waits again, or is late."""
        members = self._members
        await members.reach(chosen, self._patience.interrupt)
        before = members.take_news(chosen)
        try:
            await self._staff.form(chosen)
        except FarandoleError as exc:
            why = str(exc).splitlines()[0]
            self.torn = f"the ranks could form no world ({why})"
            await self._hear_again(before, why)
            return False
        complete = await members.until(
            lambda: self.disturbed or members.torn or all(kernel in members.formed for kernel in chosen),
            self._patience.form,
        )
        if not complete:
            # A link between two of them may be cut, and they hold all commits: only who does not come back is killed.
            self.torn = f"the ranks did not form a world within {self._patience.form:g} s"
        return all(kernel in members.formed for kernel in chosen)

    async def _hear_again(self, before: dict[RankKernel, dict[str, Any]], why: str) -> None:
        """Find out who still waits after a world was told to some only; the others try to form it, and are late."""
        members = self._members
        asked = [kernel for kernel in before if kernel.alive and kernel.connected]
        answers = await members.ask(asked, rank_calls.waits(), seconds=self._patience.leave)
        for kernel, waits in answers.items():
            if waits and kernel not in members.waiting:
                members.hear(kernel, before[kernel] | {"failed": True, "why": why})
