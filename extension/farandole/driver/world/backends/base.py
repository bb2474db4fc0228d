"""What a backend has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from farandole.driver.workers.worker import WorkerInfo
from farandole.exceptions import WorkerStartError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A rank's place in the world; "local" and "cross" count within and across nodes, as in MPI and Horovod.

    A node is what shares loopback: of containers on one machine each is one. `machine_size` counts the ranks of all.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    machine_size: int
    worker: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the ranks meet."""

    host: str
    port: int


class Host(Enum):
    """Who hosts the meeting point."""

    NOBODY = "nobody"
    FIRST_WORKER = "the first worker's server"
    RANK_0 = "rank 0"


class Backend(ABC):
    """A backend says who hosts the meeting point and gives the environment; `farandole.ranks.world.world` forms it."""

    name: ClassVar[str]
    host: ClassVar[Host]

    @abstractmethod
    def environment(self, seat: Seat, endpoint: Endpoint, /, *, interface: str | None) -> dict[str, str]:
        """Return the environment variables that the rank in `seat` needs; `interface` is a network interface's name."""


class NoBackend(Backend):
    """Ranks that know their numbers and share no process group."""

    name = "none"
    host = Host.NOBODY

    def environment(self, _seat: Seat, _endpoint: Endpoint, /, *, interface: str | None) -> dict[str, str]:  # noqa: ARG002
        """Return nothing."""
        return {}


def seats(workers: Sequence[WorkerInfo]) -> list[Seat]:
    """Seat the ranks: `workers` holds for each rank, in order, the worker that it runs on.

    Raises:
        WorkerStartError: workers on several hosts, and one of their host names leads to no address that peers reach.
    """
    on_node: dict[str, list[int]] = {}
    on_machine = Counter(worker.machine for worker in workers)
    for rank, worker in enumerate(workers):
        on_node.setdefault(worker.node, []).append(rank)
    nodes = list(on_node)
    placed = []
    for rank, worker in enumerate(workers):
        local_rank = on_node[worker.node].index(rank)
        peers = [node for node in nodes if len(on_node[node]) > local_rank]
        placed.append(
            Seat(
                rank=rank,
                size=len(workers),
                local_rank=local_rank,
                local_size=len(on_node[worker.node]),
                cross_rank=peers.index(worker.node),
                cross_size=len(peers),
                machine_size=on_machine[worker.machine],
                worker=worker.worker,
                address=LOOPBACK if len(nodes) == 1 else _reachable(worker),
            )
        )
    return placed


def _reachable(worker: WorkerInfo) -> str:
    if worker.address and not worker.address.startswith("127."):
        return worker.address
    raise WorkerStartError(
        f"the host name {worker.host!r} of worker {worker.worker} leads to {worker.address or 'no address'}, where the "
        "other workers cannot reach it. Give the name the host's network address in its /etc/hosts (a line "
        f"`127.0.1.1 {worker.host}` must go) or in DNS."
    )
