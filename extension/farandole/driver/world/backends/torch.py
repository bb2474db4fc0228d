"""The torch.distributed backend, with NCCL if each rank has its own GPU, or Gloo otherwise."""

from __future__ import annotations

from farandole.driver.world.backends.base import Backend, Endpoint, Host, RankAssignment


class TorchBackend(Backend):
    """The torch.distributed backend, which sets the same environment variables as torchrun.

    Sources: "Environment variable initialization" in the PyTorch documentation for torch.distributed, and
    ``torch/distributed/elastic/agent/server/local_elastic_agent.py`` of torch 2.13.
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
            "GROUP_RANK": str(assignment.node),
            "GROUP_WORLD_SIZE": str(assignment.nodes),
            "ROLE_NAME": "default",
            "ROLE_RANK": str(assignment.rank),
            "ROLE_WORLD_SIZE": str(assignment.size),
            # Libraries such as Lightning conclude from this variable that a launcher has started all processes.
            "TORCHELASTIC_RUN_ID": "farandole",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            # The store at MASTER_ADDR exists already, so rank 0 must not open one, for example in `init_rpc`.
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        interface = {"GLOO_SOCKET_IFNAME": endpoint.interface} if endpoint.interface else {}
        return variables | interface | _lightning(assignment)


def _lightning(assignment: RankAssignment) -> dict[str, str]:
    """Return the number of devices and nodes, which Lightning's Trainer and Fabric would take for one each.

    Sources: ``_defaults_from_env_vars`` in ``lightning/pytorch/utilities/argparse.py``, and ``_set_env_variables`` in
    ``lightning/fabric/cli.py`` of Lightning 2.6.
    """
    numbers = {"DEVICES": str(assignment.local_size), "NUM_NODES": str(assignment.nodes)}
    return {prefix + name: number for name, number in numbers.items() for prefix in ("PL_TRAINER_", "LT_")}
