"""The deployment on one machine with containers: one for the hub, one for the proxy and one for each server."""

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
    """A container for each server, in the network of its user; the user's home is a persistent volume."""

    async def create_object(self) -> Any:
        """Create the container once all its volumes exist."""
        await self.ensure_volumes()
        return await super().create_object()

    async def remove_object(self) -> None:
        """Remove the container, running or not."""
        await self.remove_named(self.object_id)

    async def remove_named(self, name: str) -> None:
        """Remove the container of that name or id if it exists."""
        try:
            await self.docker("remove_container", name, v=True, force=True)
        except docker.errors.APIError as exc:
            # The container is already removed, or its removal is in progress.
            if exc.status_code not in {404, 409}:
                raise

    async def stop_object(self) -> None:
        """Stop the container. The engine kills it if it does not stop within some seconds."""
        try:
            await self.docker("stop", self.container_id, timeout=STOP_SECONDS)
        except docker.errors.NotFound:
            self.log.info("%s is gone already", self.container_name)


def configure(c: Any, settings: Settings, profile_set: ProfileSet) -> None:
    """Set up a hub whose servers are containers on the same machine."""
    deployment = DockerSettings.from_environment(os.environ)
    configure_hub(c, settings, profile_set, deployment)
    connect = partial(docker.APIClient, base_url=os.environ["DOCKER_HOST"], version="auto")
    networks = user_networks(c, deployment, UserNetworks, connect())
    # Set these on a class: traitlets would copy a setting for each spawner, but all must share one lock.
    shared = {
        "networks": networks,
        "shared_volumes": SharedVolumes(connect(), deployment.shares, name=deployment.name),
        "pulls": ImagePulls(connect),
        "gpu_pool": configure_gpus(c, profile_set, os.environ),
    }
    c.JupyterHub.spawner_class = type("DockerSpawner", (FarandoleDockerSpawner,), shared)
    configure_containers(c, deployment)
    configure_servers(c, profile_set, deployment, finish=limit_swap)


def configure_containers(c: Any, deployment: DockerSettings) -> None:
    """Configure the container of every server."""
    c.DockerSpawner.remove = True
    c.DockerSpawner.extra_create_kwargs = {"labels": {HUB_LABEL: deployment.name}}
    c.DockerSpawner.extra_host_config = {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        # Data loader workers and NCCL pass tensors through shared memory. Docker's default of 64 MB causes "Bus error".
        "shm_size": SHARED_MEMORY,
        "log_config": {"type": "json-file", "config": {"max-size": "20m", "max-file": "2"}},
    }


def limit_swap(spawner: Any, _profile: Profile) -> None:
    """Count swap towards the memory limit. By default a server may swap that much again, and all servers slow down."""
    spawner.extra_host_config = {**spawner.extra_host_config, "memswap_limit": spawner.mem_limit}
