"""Interfaces of objects that use the core, and whose packages the core cannot import, because they import the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from farandole.driver.data.status import DaskStatus
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.kernels.router import MemberListener
from farandole.driver.workers.worker import Progress


class ElasticRun(MemberListener, Protocol):
    """The cell of an elastic run, which `farandole.driver.elastic` implements."""

    async def run(self) -> list[Reply]:
        """Execute the cell, and return its outcomes as `farandole.driver.elastic.agent.ElasticAgent.run` does."""

    def stop(self) -> None:
        """End the run at the user's request."""

    async def scale(self, workers: int, progress: Progress) -> None:
        """Start or stop workers until there are this many, while the run continues."""


class RankService(Protocol):
    """What runs on the ranks beside cells, which `farandole.driver.data` implements."""

    @property
    def status(self) -> DaskStatus:
        """Its latest status, without waiting for it."""

    async def join(self) -> None:
        """Start on the ranks that have become part of the world."""

    async def leave(self, kernels: Sequence[RankKernel]) -> None:
        """End on ranks that will stop."""
