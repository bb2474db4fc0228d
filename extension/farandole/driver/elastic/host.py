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
"""Timeout for a rank to be reachable and to answer a call beside its cell. A large sort or pickle holds the
interpreter lock and delays all threads of the rank."""


@dataclass(frozen=True, kw_only=True)
class ElasticTimeouts:
    """The timeouts of an elastic agent, in seconds."""

    grace: float = 1.0
    """How long ranks may take to notice by themselves that their world is broken."""
    abandon: float = 5.0
    """How long a rank may take to reach its waiting point after its connections were closed."""
    interrupt: float = 15.0
    """How long a rank may take to reach its waiting point after an interrupt; late ranks are killed."""
    hung: float = HUNG_SECONDS
    """How long a rank may take to answer during training; silent ranks are killed."""
    form: float = 60.0
    """How long the ranks may take to form a world."""
    pause: float = 60.0
    """How long all ranks may take to return their numbers of commits: half of the time for which a rank holds its
    commit, so that the answer arrives while all ranks still hold."""
    leave: float = 650.0
    """How long the last rank may take to leave its loop after the first. It may be evaluating; the first rank waits for
    nearly as long before it breaks the world."""
    replacement: float = 60.0
    """How long to wait for new ranks while fewer than `min_ranks` are left."""
    retry: float = 15.0
    """Pause after a failed attempt to replace a rank."""

    @property
    def call(self) -> float:
        """How long a rank may take to answer a call; late ranks are killed, so this is never shorter than `hung`."""
        return max(CALL_SECONDS, self.hung)


class ElasticHost(Protocol):
    """The cluster as an elastic agent sees it: ranks, cells and worlds."""

    async def replace_lost(self) -> list[RankKernel]:
        """Replace lost ranks and workers; return all ranks of the cluster."""

    async def launch(self, kernel: RankKernel) -> asyncio.Task[Reply]:
        """Start the run's cell on a rank of the world."""

    async def admit(self, kernel: RankKernel, *, rank: int, size: int) -> asyncio.Task[Reply]:
        """Prepare a new kernel as the only rank of a temporary world, and start the run's cell on that kernel."""

    async def form(self, kernels: Sequence[RankKernel]) -> None:
        """Let waiting ranks form a world."""

    async def release(self, kernels: Sequence[RankKernel]) -> None:
        """Stop the workers of ranks that have left the run."""

    def notify(self, text: str) -> None:
        """Show the user one sentence."""

    def assigned(self, workers: Sequence[str]) -> None:
        """Record on which workers the ranks 0, 1, ... run."""
