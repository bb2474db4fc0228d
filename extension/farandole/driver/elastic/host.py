"""What the supervisor of an elastic run asks of the cluster, and how long it waits."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import HUNG_SECONDS
from farandole.driver.kernels.replies import Reply

ASK_SECONDS = 30.0
"""How long a rank may take to be reachable again and to answer beside its cell; a sort or a pickle stops all its
threads for a while."""


@dataclass(frozen=True, kw_only=True)
class ElasticTimeouts:
    """How long a supervisor waits, in seconds."""

    grace: float = 1.0
    """For ranks to notice by themselves that the world is broken."""
    leave: float = 5.0
    """For a rank to come to its waiting point once its connections are cut."""
    interrupt: float = 15.0
    """The same after an interrupt; then it is killed."""
    hung: float = HUNG_SECONDS
    """For a rank to answer while nothing is amiss; then it is taken for hung and killed."""
    form: float = 60.0
    """For the ranks to form a world."""
    hold: float = 60.0
    """For all to say how often they have committed; half of what a rank holds at a commit to hear where to part."""
    part: float = 650.0
    """For the last rank to part after the first, which waits for a world almost as long: one may be evaluating."""
    refill: float = 60.0
    """For new ranks, with fewer than the run must have."""
    retry: float = 15.0
    """After a failed attempt to replace a rank."""

    @property
    def ask(self) -> float:
        """For a rank to answer what it has to; then it is killed, so no sooner than where nothing is amiss."""
        return max(ASK_SECONDS, self.hung)


class ElasticHost(ABC):
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
