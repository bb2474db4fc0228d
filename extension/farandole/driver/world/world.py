"""The world of a cluster: when it has to be formed anew, and how."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.group import RankGroup
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.workers.worker import Worker, WorkerInfo
from farandole.driver.world.backends.base import LOOPBACK, Backend, Endpoint, Host, Seat, seats
from farandole.driver.world.backends.horovod import slot

ANSWER_SECONDS = 30.0
"""A healthy rank may be slow to answer: a sort or a pickle stops all its threads for a while."""
FORM_SECONDS = 120.0


class World:
    """Keeps the ranks of a group in one process group of one backend."""

    def __init__(self, group: RankGroup, backend: Backend) -> None:
        self._group = group
        self.backend = backend
        self._members: tuple[str, ...] | None = None

    @property
    def formed(self) -> bool:
        """True while the ranks that formed the world are those of the group, and nothing has happened to them."""
        return self._members == self._present()

    def invalidate(self) -> None:
        """Have the world formed anew before the next cell: after an interrupt or a failure nobody knows its state."""
        self._members = None

    def use(self, backend: Backend) -> None:
        """Change the backend, where it is another one."""
        if backend.name != self.backend.name:
            self.backend = backend
            self.invalidate()

    async def form(
        self,
        workers: Sequence[Worker],
        infos: Sequence[WorkerInfo],
        waiting: Sequence[RankKernel] | None = None,
    ) -> None:
        """Form the world; both sequences hold for each rank the worker that it runs on.

        Ranks of a running cell that are `waiting` for it are only told to, and say themselves when they have.
        All ranks must answer first: with a peer missing, Horovod's init can abort healthy processes.
        """
        await self._group.control(
            rank_calls.identity(),
            what="asking the ranks before they form a world",
            timeout=ANSWER_SECONDS,
            kernels=waiting,
            aside=waiting is not None,
        )
        placed = seats(infos)
        alone = len({info.node for info in infos}) == 1
        endpoint = await self._meet(workers[0], placed, LOOPBACK if alone else "", waiting)
        form = rank_calls.form if waiting is None else rank_calls.join
        calls = [
            form(
                common(seat, self.backend)
                | self.backend.environment(seat, endpoint, interface="lo" if alone else None),
            )
            for seat in placed
        ]
        await self._group.control(
            calls,
            what=f"forming the world with backend {self.backend.name}",
            timeout=FORM_SECONDS,
            kernels=waiting,
            aside=waiting is not None,
        )
        self._members = self._present()

    async def form_alone(self, kernel: RankKernel, info: WorkerInfo, *, rank: int, size: int) -> None:
        """Give a rank a world of its own until it joins that of the others, as `rank` of `size` probably."""
        [seat] = seats([info])
        control = functools.partial(
            self._group.control, what=f"preparing rank {rank}", timeout=FORM_SECONDS, kernels=[kernel]
        )
        port = 0
        if self.backend.host is Host.RANK_0:
            [port] = await control(rank_calls.open_store(LOOPBACK))
        endpoint = Endpoint(host=LOOPBACK, port=port)
        environment = common(seat, self.backend) | self.backend.environment(seat, endpoint, interface="lo")
        await control(rank_calls.form(environment))
        expected = {"FARANDOLE_RANK": str(rank), "FARANDOLE_SIZE": str(size), "FARANDOLE_OUTSIDE": "1"}
        await control(rank_calls.prepare(expected))

    async def _meet(
        self, first: Worker, placed: Sequence[Seat], host: str, waiting: Sequence[RankKernel] | None
    ) -> Endpoint:
        port = 0
        if self.backend.host is Host.FIRST_WORKER:
            port = await first.open_rendezvous([slot(seat) for seat in placed], host=host)
        elif self.backend.host is Host.RANK_0:
            [port] = await self._group.control(
                rank_calls.open_store(host),
                what="opening rank 0's store",
                timeout=FORM_SECONDS,
                kernels=(self._group.kernels if waiting is None else waiting)[:1],
                aside=waiting is not None,
            )
        return Endpoint(host=placed[0].address or LOOPBACK, port=port)

    def _present(self) -> tuple[str, ...]:
        return tuple(kernel.kernel_id for kernel in self._group.kernels)


def common(seat: Seat, backend: Backend) -> dict[str, str]:
    """Return the variables that `farandole.ranks.context` reads, whatever the backend."""
    return {
        "FARANDOLE_RANK": str(seat.rank),
        "FARANDOLE_SIZE": str(seat.size),
        "FARANDOLE_LOCAL_RANK": str(seat.local_rank),
        "FARANDOLE_LOCAL_SIZE": str(seat.local_size),
        "FARANDOLE_MACHINE_SIZE": str(seat.machine_size),
        "FARANDOLE_WORKER": seat.worker,
        "FARANDOLE_BACKEND": backend.name,
        "FARANDOLE_OUTSIDE": "",
    }
