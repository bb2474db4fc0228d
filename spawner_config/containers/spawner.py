"""The deployment on one machine with containers: hub, proxy and every server in one of its own."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import docker

from spawner_config.containers.compose_hub import configure_hub, configure_servers, user_networks
from spawner_config.containers.images import ImagePulls
from spawner_config.containers.network_spawner import NetworkedSpawner
from spawner_config.containers.networks import UserNetworks
from spawner_config.containers.settings import DockerSettings
from spawner_config.containers.shared_volumes import SharedVolumes
from spawner_config.gpus.spawner import GpuSpawner, configure_gpus
from spawner_config.labels import HUB_LABEL

if TYPE_CHECKING:
    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

STOP_SECONDS = 5
PROCESSES = 4096
SHARED_MEMORY = "1g"


class FarandoleDockerSpawner(NetworkedSpawner, GpuSpawner):
    """A container for each server, in its user's own network; the user's home is a volume that stays."""

    async def create_object(self) -> Any:
        """Create the container once all its volumes are there."""
        await self.ensure_volumes()
        return await super().create_object()

    async def remove_object(self) -> None:
        """Remove the container, running or not."""
        await self.remove_named(self.object_id)

    async def remove_named(self, name: str) -> None:
        """Remove the container of that name or id, if there is one."""
        try:
            await self.docker("remove_container", name, v=True, force=True)
        except docker.errors.APIError as exc:
            # Gone, or going by itself.
            if exc.status_code not in {404, 409}:
                raise

    async def stop_object(self) -> None:
        """Stop the container; what does not end by itself is killed after some seconds."""
        try:
            await self.docker("stop", self.container_id, timeout=STOP_SECONDS)
        except docker.errors.NotFound:
            self.log.info("%s is gone already", self.container_name)


def configure(c: Any, settings: Settings, profile_set: ProfileSet) -> None:
    """Set up a hub whose servers are containers on its own machine."""
    ours = DockerSettings.from_environment(os.environ)
    configure_hub(c, settings, profile_set, ours)
    connect = partial(docker.APIClient, base_url=os.environ["DOCKER_HOST"], version="auto")
    networks = user_networks(c, ours, UserNetworks, connect())
    # A class and not a setting: traitlets copies settings for each spawner, and the networks' lock must be one.
    shared = {
        "networks": networks,
        "shared_volumes": SharedVolumes(connect(), ours.shares, name=ours.name),
        "pulls": ImagePulls(connect),
        "gpu_pool": configure_gpus(c, profile_set, os.environ),
    }
    c.JupyterHub.spawner_class = type("DockerSpawner", (FarandoleDockerSpawner,), shared)
    configure_containers(c, ours)
    configure_servers(c, profile_set, ours, finish=limit_swap)


def configure_containers(c: Any, ours: DockerSettings) -> None:
    """Set what every container of a server has."""
    c.DockerSpawner.remove = True
    c.DockerSpawner.extra_create_kwargs = {"labels": {HUB_LABEL: ours.name}}
    c.DockerSpawner.extra_host_config = {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        # Loaders' workers and NCCL pass tensors through it; an engine's own 64 MB end in "Bus error".
        "shm_size": SHARED_MEMORY,
        "log_config": {"type": "json-file", "config": {"max-size": "20m", "max-file": "2"}},
    }


def limit_swap(spawner: Any, _profile: Profile) -> None:
    """Count swap as memory: an engine's own choice is as much swap again, and a server that swaps slows down all."""
    spawner.extra_host_config = {**spawner.extra_host_config, "memswap_limit": spawner.mem_limit}
