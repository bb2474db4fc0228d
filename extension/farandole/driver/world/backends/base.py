"""The interface of a backend, and the rank numbers that all backends use."""

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
class RankAssignment:
    """The numbers of a rank in the world. As in MPI and Horovod, "local" counts within a node and "cross" across nodes.

    A node is a set of ranks that share a loopback interface, so each container is a node. `node` is the number of the
    rank's node, and `nodes` counts all nodes. `machine_size` is the number of ranks in all containers on the machine.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    node: int
    nodes: int
    machine_size: int
    worker: str
    address: str

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers that Horovod needs, indexed by name."""
        names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The address at which the ranks of a world connect to each other, and the network interface to use.

    `interface` is None if the backend can choose the interface itself.
    """

    host: str = LOOPBACK
    port: int = 0
    interface: str | None = None


class Host(Enum):
    """The process that opens a backend's endpoint."""

    NONE = "none"
    FIRST_WORKER = "the first worker's server"
    RANK_0 = "rank 0"


class Backend(ABC):
    """Defines which process opens the endpoint, and which environment variables the ranks need.

    `farandole.ranks.world.world` uses these variables on the ranks.
    """

    name: ClassVar[str]
    host: ClassVar[Host]

    @abstractmethod
    def environment(self, assignment: RankAssignment, endpoint: Endpoint, /) -> dict[str, str]:
        """Return the environment variables of a rank."""


class NoBackend(Backend):
    """A backend whose ranks have numbers but do not share a process group."""

    name = "none"
    host = Host.NONE

    def environment(self, _assignment: RankAssignment, _endpoint: Endpoint, /) -> dict[str, str]:
        """Return no variables."""
        return {}


def assign_ranks(workers: Sequence[WorkerInfo]) -> list[RankAssignment]:
    """Return the numbers of all ranks; `workers` contains the worker of each rank, in rank order.

    Raises:
        WorkerStartError: the workers run on several nodes, and a worker's host name resolves to no reachable address.
    """
    on_node: dict[str, list[int]] = {}
    on_machine = Counter(worker.machine for worker in workers)
    for rank, worker in enumerate(workers):
        on_node.setdefault(worker.node, []).append(rank)
    nodes = list(on_node)
    assignments = []
    for rank, worker in enumerate(workers):
        local_rank = on_node[worker.node].index(rank)
        peers = [node for node in nodes if len(on_node[node]) > local_rank]
        assignments.append(
            RankAssignment(
                rank=rank,
                size=len(workers),
                local_rank=local_rank,
                local_size=len(on_node[worker.node]),
                cross_rank=peers.index(worker.node),
                cross_size=len(peers),
                node=nodes.index(worker.node),
                nodes=len(nodes),
                machine_size=on_machine[worker.machine],
                worker=worker.worker,
                address=LOOPBACK if len(nodes) == 1 else _reachable(worker),
            )
        )
    return assignments


def _reachable(worker: WorkerInfo) -> str:
    if worker.address and not worker.address.startswith("127."):
        return worker.address
    raise WorkerStartError(
        f"the host name {worker.host!r} of worker {worker.worker} resolves to {worker.address or 'no address'}, which "
        "other workers cannot reach. Make it resolve to the host's network address, in the host's /etc/hosts (remove "
        f"a line `127.0.1.1 {worker.host}`) or in DNS."
    )
