"""Starts new ranks for an elastic run in the background, and stops the workers of ranks that left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from farandole.driver.elastic.host import ElasticHost, ElasticTimeouts
from farandole.driver.elastic.membership import Membership
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.options import Elastic
from farandole.exceptions import FarandoleError

MOST_REFUSALS = 3


class Replacer:
    """Starts new ranks and runs their cells up to the loop, where they wait for the agent to add them to the world."""

    def __init__(self, host: ElasticHost, membership: Membership, options: Elastic, timeouts: ElasticTimeouts) -> None:
        self._host = host
        self._membership = membership
        self._options = options
        self._timeouts = timeouts
        self._excluded: set[RankKernel] = set()
        self._check_again = False
        self._replacing: asyncio.Task[None] | None = None
        self._releases: set[asyncio.Task[None]] = set()

    @property
    def gives_up(self) -> bool:
        """Whether replacement stops because too many new ranks in a row have failed to join."""
        return len(self._membership.refusals) >= MOST_REFUSALS

    @property
    def error(self) -> BaseException | None:
        """The unexpected error that ended the background task, or None."""
        task = self._replacing
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    def check(self) -> None:
        """Replace lost ranks in the background, and admit ranks of the cluster that are not running the cell yet."""
        self._check_again = True
        if self._replacing is None or self._replacing.done():
            self._replacing = asyncio.create_task(self._replace())

            self._replacing.add_done_callback(lambda _: self._membership.wake())

    def exclude(self, kernels: Iterable[RankKernel]) -> None:
        """Never admit these ranks again, because their workers will be stopped."""
        self._excluded |= set(kernels)

    def release(self, kernels: Iterable[RankKernel]) -> None:
        """Stop the workers of these ranks in the background."""
        self._releases.add(asyncio.create_task(self._release(list(kernels))))

    async def close(self) -> None:
        """Stop replacing ranks, and wait until released workers have stopped."""
        if self._replacing is not None and not self._replacing.done():
            self._replacing.cancel()
            await asyncio.wait([self._replacing])
        if self._releases:
            await asyncio.wait(self._releases)

    async def _release(self, kernels: list[RankKernel]) -> None:
        try:
            await self._host.release(kernels)
        except FarandoleError as exc:
            self._host.notify(
                f"a worker that left the run may still exist; stop it in the hub's control panel: "
                f"{str(exc).splitlines()[0]}",
                warning=True,
            )

    async def _replace(self) -> None:
        """Start ranks until none is missing or too many failed to join. Notify the user of errors, and try again."""
        shown = ""
        while self._check_again and not self.gives_up:
            if self._membership.refusals:
                # Wait before the next attempt, because a full disk or a failing shared file system may recover soon.
                await asyncio.sleep(self._timeouts.retry)
            try:
                self._check_again = False
                kernels = await self._host.replace_lost()
                known = {*self._membership.all, *self._excluded}
                # Another rank may have been lost meanwhile. It is replaced in the next turn.
                new = [kernel for kernel in kernels if kernel.alive and kernel not in known]
                room = self._options.room(len(kernels)) - len(self._membership.all)
                for kernel in new[: max(room, 0)]:
                    await self._admit(kernel)
            except FarandoleError as exc:
                self._check_again = True
                text = f"a lost rank could not be replaced yet, trying again: {str(exc).splitlines()[0]}"
                if text != shown:
                    self._host.notify(text, warning=True)
                shown = text
                await asyncio.sleep(self._timeouts.retry)

    async def _admit(self, kernel: RankKernel) -> None:
        size = len(self._membership.all) + 1
        kernel.rank = size - 1
        cell = await self._host.admit(kernel, rank=size - 1, size=size)
        self._membership.add(kernel, cell, in_world=False)
