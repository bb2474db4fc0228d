"""torch.distributed: Gloo on CPUs, NCCL where every rank has a GPU of its own."""

from __future__ import annotations

from farandole.driver.world.backends.base import Backend, Endpoint, Host, Seat


class TorchBackend(Backend):
    """torch.distributed, with the variables that torchrun sets.

    Source: "Environment variable initialization" in PyTorch's documentation of torch.distributed.
    """

    name = "torch"
    host = Host.RANK_0

    def environment(self, seat: Seat, endpoint: Endpoint, /, *, interface: str | None) -> dict[str, str]:
        """Return the variables that ``torch.distributed`` and code written for torchrun read."""
        variables = {
            "MASTER_ADDR": endpoint.host,
            "MASTER_PORT": str(endpoint.port),
            "RANK": str(seat.rank),
            "WORLD_SIZE": str(seat.size),
            "LOCAL_RANK": str(seat.local_rank),
            "LOCAL_WORLD_SIZE": str(seat.local_size),
        }
        return variables | ({"GLOO_SOCKET_IFNAME": interface} if interface else {})
