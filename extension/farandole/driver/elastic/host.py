"""The interface between an elastic run's agent and its cluster, and the agent's timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.liveness import HUNG_SECONDS
from farandole.driver.kernels.replies import Reply

CALL_SECONDS = 30.0
"""How many seconds a rank may take to connect or to answer a call while its cell is running. A large sort or pickle
holds the global interpreter lock and delays all threads of the rank."""


@dataclass(frozen=True, kw_only=True)
class ElasticTimeouts:
    """The timeouts of an elastic agent, in seconds."""

    grace: float = 1.0
    """How long ranks may take to react to a broken world or a failed cell by themselves."""
    abandon: float = 5.0
    """How long a rank may take to begin waiting for the next world after its connections were closed."""
    interrupt: float = 15.0
    """How long a rank may take to begin waiting for the next world after an interrupt. Late ranks are killed."""
    hung: float = HUNG_SECONDS
    """How long a rank may stay silent during training. Ranks that take longer to answer are killed."""
    form: float = 60.0
    """How long the ranks may take to form a world."""
    pause: float = 60.0
    """How long all ranks may take to return their numbers of commits. A rank holds its commit for twice as long, so the
    first rank is still holding when the last one answers."""
    leave: float = 650.0
    """How long the last rank may take to leave its loop after the first one. The limit is long because a rank may be
    running an evaluation; the first rank waits nearly as long before it breaks the world."""
    replacement: float = 60.0
    """How long to wait for new ranks while fewer than `min_ranks` are left."""
    retry: float = 15.0
    """The pause after a failed attempt to replace a rank."""

    @property
    def call(self) -> float:
        """How long a rank may take to answer a call. This is at least `hung`, because late ranks are killed."""
        return max(CALL_SECONDS, self.hung)


class ElasticHost(Protocol):
    """The operations on a cluster that an elastic agent needs, on ranks, cells and worlds."""

    async def replace_lost(self) -> list[RankKernel]:
        """Replace lost ranks and workers, and return all ranks of the cluster."""

    async def launch(self, kernel: RankKernel) -> asyncio.Task[Reply]:
        """Start the run's cell on a rank of the world."""

    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> asyncio.Task[Reply]:
        """Prepare a new kernel as the only rank of a temporary world, and start the run's cell on that kernel."""

    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Make these waiting ranks form a world."""

    async def release(self, kernels: Sequence[RankKernel]) -> None:
        """Stop the workers of ranks that have left the run."""

    def notify(self, text: str, *, warning: bool = False) -> None:
        """Show a one-sentence notice to the user. A ``warning`` reports a loss, a hang or a failure."""

    def assigned(self, workers: Sequence[str]) -> None:
        """Record the names of the workers that run ranks 0, 1, and so on."""
