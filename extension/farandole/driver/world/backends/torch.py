"""The torch.distributed backend, with NCCL if each rank has its own GPU, or Gloo otherwise."""

from __future__ import annotations

from farandole.driver.world.backends.base import Backend, Endpoint, Host, RankAssignment


class TorchBackend(Backend):
    """The torch.distributed backend, which sets the same environment variables as torchrun.

    Source: "Environment variable initialization" in the PyTorch documentation for torch.distributed.
    """

    name = "torch"
    host = Host.RANK_0

    def environment(self, assignment: RankAssignment, endpoint: Endpoint, /) -> dict[str, str]:
        """Return the variables that ``torch.distributed`` and scripts written for torchrun read."""
        variables = {
            "MASTER_ADDR": endpoint.host,
            "MASTER_PORT": str(endpoint.port),
            "RANK": str(assignment.rank),
            "WORLD_SIZE": str(assignment.size),
            "LOCAL_RANK": str(assignment.local_rank),
            "LOCAL_WORLD_SIZE": str(assignment.local_size),
        }
        return variables | ({"GLOO_SOCKET_IFNAME": endpoint.interface} if endpoint.interface else {})
