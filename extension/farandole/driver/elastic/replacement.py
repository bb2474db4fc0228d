"""New ranks for an elastic run, started in the background while it goes on, and the workers that it lets go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.elastic.membership import Membership
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.options import Elastic
from farandole.exceptions import FarandoleError

MOST_REFUSALS = 3
"""How many new ranks in a row may fail to join before no more are tried."""


class Replacer:
    """Brings ranks as far as the beginning of the run's loop; the supervisor takes them into the world."""

    def __init__(self, staff: ElasticHost, members: Membership, options: Elastic, patience: ElasticTimeouts) -> None:
        self._staff = staff
        self._members = members
        self._options = options
        self._patience = patience
        self._gone: set[RankKernel] = set()
        self._look_again = False
        self._refilling: asyncio.Task[None] | None = None
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def gives_up(self) -> bool:
        """True once so many new ranks have failed to join that the next one would too."""
        return len(self._members.refusals) >= MOST_REFUSALS

    @property
    def trouble(self) -> BaseException | None:
        """A bug that ended the work in the background."""
        task = self._refilling
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    def look(self) -> None:
        """Look for ranks that the cluster has, or should have, and the run has not."""
        self._look_again = True
        if self._refilling is None or self._refilling.done():
            self._refilling = asyncio.create_task(self._refill())
            self._refilling.add_done_callback(lambda _: self._members.wake())

    def exclude(self, kernels: Iterable[RankKernel]) -> None:
        """Never bring these ranks again: their workers are going."""
        self._gone |= set(kernels)

    def release(self, kernels: Iterable[RankKernel]) -> None:
        """Stop the workers of ranks, in the background."""
        self._releases.add(asyncio.create_task(self._release(list(kernels))))

    async def close(self) -> None:
        """Start nothing more, and wait until the workers that are going have gone."""
        if self._refilling is not None and not self._refilling.done():
            self._refilling.cancel()
            await asyncio.wait([self._refilling])
        if self._releases:
            await asyncio.wait(self._releases)

    async def _release(self, kernels: list[RankKernel]) -> None:
        try:
            await self._staff.release(kernels)
        except FarandoleError as exc:
            self._staff.tell(
                f"a worker that left the run may still be there, stop it in the hub's control panel: "
                f"{str(exc).splitlines()[0]}"
            )

    async def _refill(self) -> None:
        """Start what is missing, until there is nothing to start; trouble is told and tried again."""
        told = ""
        while self._look_again and not self.gives_up:
            if self._members.refusals:
                # What a file system or a full disk has refused may work a moment later.
                await asyncio.sleep(self._patience.retry)
            try:
                self._look_again = False
                kernels = await self._staff.refill()
                known = {*self._members.all, *self._gone}
                new = [kernel for kernel in kernels if kernel not in known]
                room = self._options.room(len(kernels)) - len(self._members.all)
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
        size = len(self._members.all) + 1
        kernel.rank = size - 1
        cell = await self._staff.admit(kernel, rank=size - 1, size=size)
        self._members.add(kernel, cell, inside=False)
