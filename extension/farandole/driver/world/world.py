"""The world of a cluster, which is the process group that the ranks form on the driver's request."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.workers.worker import Worker, WorkerInfo
from farandole.driver.world.backends.base import LOOPBACK, Backend, Endpoint, Host, RankAssignment, assign_ranks
from farandole.driver.world.backends.horovod import slot

ANSWER_SECONDS = 30.0
"""How many seconds a healthy rank may take to answer. A large sort or pickle delays all threads of the rank."""
FORM_SECONDS = 120.0
LOOPBACK_DEVICE = "lo"


class World:
    """Keeps the ranks of a group in one process group, which the selected backend forms."""

    def __init__(self, group: RankGroup, backend: Backend) -> None:
        self._group = group
        self.backend = backend
        self._members: tuple[str, ...] | None = None

    @property
    def formed(self) -> bool:
        """Whether the current ranks of the group have formed the world, and the world is still valid."""
        return self._members == self._current()

    def invalidate(self) -> None:
        """Make the next cell form the world again, because the world has changed or its state is unknown."""
        self._members = None

    def use(self, backend: Backend) -> None:
        """Switch to another backend. Has no effect if that backend is already in use."""
        if backend.name != self.backend.name:
            self.backend = backend
            self.invalidate()

    async def form(
        self, workers: Sequence[Worker], infos: Sequence[WorkerInfo], waiting: Sequence[RankKernel] | None = None
    ) -> None:
        """Form the world. ``workers`` and ``infos`` have one element for each rank, in rank order.

        - All ranks have to answer a call first, because Horovod's ``init`` can abort healthy processes if a peer is
          missing.
        - Ranks that are ``waiting`` in a running cell only receive the call here, and report later that the world is
          formed.
        """
        kernels, in_subshell = (self._group.kernels, False) if waiting is None else (waiting, True)
        control = functools.partial(self._group.control, kernels=kernels, in_subshell=in_subshell)
        await control(rank_calls.identity(), what="asking the ranks before they form a world", timeout=ANSWER_SECONDS)
        assignments = assign_ranks(infos)
        interface = LOOPBACK_DEVICE if len({info.node for info in infos}) == 1 else None
        endpoint = await self._open_endpoint(workers[0], kernels[0], assignments, interface, in_subshell=in_subshell)
        form = rank_calls.form if waiting is None else rank_calls.join
        calls = [form(self._environment(one, endpoint)) for one in assignments]
        await control(calls, what=f"forming the world with backend {self.backend.name}", timeout=FORM_SECONDS)
        self._members = self._current()

    async def form_alone(self, kernel: RankKernel, info: WorkerInfo, *, rank: int, size: int) -> None:
        """Form a world of size 1 on a new rank, which expects to become `rank` of `size` when it joins the others."""
        assignments = assign_ranks([info])
        endpoint = Endpoint(interface=LOOPBACK_DEVICE)
        # For a single rank, torch.distributed still needs a store, but Horovod needs no rendezvous server.
        if self.backend.host is Host.RANK_0:
            endpoint = await self._open_endpoint(kernel.worker, kernel, assignments, LOOPBACK_DEVICE)
        environment = self._environment(assignments[0], endpoint)
        expected = {"FARANDOLE_RANK": str(rank), "FARANDOLE_SIZE": str(size), "FARANDOLE_OUTSIDE": "1"}
        for call in (rank_calls.form(environment), rank_calls.prepare(expected)):
            await self._group.control(call, what=f"preparing rank {rank}", timeout=FORM_SECONDS, kernels=[kernel])

    async def _open_endpoint(
        self,
        worker: Worker,
        first: RankKernel,
        ranks: Sequence[RankAssignment],
        interface: str | None,
        *,
        in_subshell: bool = False,
    ) -> Endpoint:
        """Open the backend's endpoint, if it has one, and make it listen on loopback or on all interfaces."""
        host, port = LOOPBACK if interface else "", 0
        if self.backend.host is Host.FIRST_WORKER:
            port = await worker.open_rendezvous([slot(one) for one in ranks], host=host)
        elif self.backend.host is Host.RANK_0:
            control = functools.partial(self._group.control, kernels=[first], in_subshell=in_subshell)
            [port] = await control(rank_calls.open_store(host), what="opening rank 0's store", timeout=FORM_SECONDS)
        return Endpoint(host=ranks[0].address or LOOPBACK, port=port, interface=interface)

    def _environment(self, assignment: RankAssignment, endpoint: Endpoint) -> dict[str, str]:
        return common(assignment, self.backend) | self.backend.environment(assignment, endpoint)

    def _current(self) -> tuple[str, ...]:
        return tuple(kernel.kernel_id for kernel in self._group.kernels)


def common(assignment: RankAssignment, backend: Backend) -> dict[str, str]:
    """Return the variables that `farandole.ranks.context` reads with every backend."""
    return {
        "FARANDOLE_RANK": str(assignment.rank),
        "FARANDOLE_SIZE": str(assignment.size),
        "FARANDOLE_LOCAL_RANK": str(assignment.local_rank),
        "FARANDOLE_LOCAL_SIZE": str(assignment.local_size),
        "FARANDOLE_MACHINE_SIZE": str(assignment.machine_size),
        "FARANDOLE_WORKER": assignment.worker,
        "FARANDOLE_BACKEND": backend.name,
        "FARANDOLE_OUTSIDE": "",
    }
