"""The deployment on one machine, with a container for the hub, for the proxy and for each server."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import docker

from spawner_config.containers.compose_hub import configure_hub, configure_servers, user_networks
from spawner_config.containers.images import ImagePulls
from spawner_config.containers.network_spawner import NetworkedSpawner
from spawner_config.containers.networks import UserNetworks
from spawner_config.containers.scratch import ScratchLimit
from spawner_config.containers.settings import DockerSettings
from spawner_config.containers.shared_volumes import SharedVolumes
from spawner_config.gpus.spawner import GpuSpawner, configure_gpus
from spawner_config.labels import HUB_LABEL
from spawner_config.publishing.configure import configure_publishing
from spawner_config.publishing.containers import VolumeStore

if TYPE_CHECKING:
    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

STOP_SECONDS = 5
PROCESSES = 4096
SHARED_MEMORY = "1g"


class FarandoleDockerSpawner(NetworkedSpawner, GpuSpawner):
    """Runs each server in a container, in its user's network and with a volume as the user's home."""

    scratch: ClassVar[ScratchLimit] = ScratchLimit("")

    async def create_object(self) -> Any:
        """Create the container after creating its volumes."""
        await self.ensure_volumes()
        self.extra_host_config = self.scratch.add_to(self.extra_host_config)
        try:
            return await super().create_object()
        except docker.errors.APIError as exc:
            if not self.scratch.drop_if_unsupported(exc):
                raise
        self.extra_host_config = self.scratch.add_to(self.extra_host_config)
        return await super().create_object()

    async def remove_object(self) -> None:
        """Remove the container, whether or not it is running."""
        await self.remove_named(self.object_id)

    async def remove_named(self, name: str) -> None:
        """Remove the container with this name or id if it exists."""
        try:
            await self.docker("remove_container", name, v=True, force=True)
        except docker.errors.APIError as exc:
            # The container does not exist (404), or the engine is already removing it (409).
            if exc.status_code not in {404, 409}:
                raise

    async def stop_object(self) -> None:
        """Stop the container. The engine kills its processes if they have not ended after `STOP_SECONDS`."""
        try:
            await self.docker("stop", self.container_id, timeout=STOP_SECONDS)
        except docker.errors.NotFound:
            self.log.info("%s has already been removed", self.container_name)


def configure(c: Any, settings: Settings, profile_set: ProfileSet) -> None:
    """Configure a hub whose servers are containers on the same machine."""
    deployment = DockerSettings.from_environment(os.environ)
    engine = os.environ["DOCKER_HOST"]
    configure_hub(c, settings, profile_set, deployment, engine=engine)
    connect = partial(docker.APIClient, base_url=engine, version="auto")
    networks = user_networks(c, deployment, UserNetworks, connect())
    # Set these as class attributes, because traitlets would copy a configured value for each spawner, while all
    # spawners must share the same objects.
    shared = {
        "networks": networks,
        "shared_volumes": SharedVolumes(connect(), deployment.shares, name=deployment.name),
        "home_sizes": deployment.home_size,
        "scratch": ScratchLimit(deployment.scratch),
        "pulls": ImagePulls(connect),
        "gpu_pool": configure_gpus(c, profile_set, os.environ),
    }
    c.JupyterHub.spawner_class = type("DockerSpawner", (FarandoleDockerSpawner,), shared)
    configure_containers(c, deployment)
    configure_servers(c, profile_set, deployment, finish=limit_swap)
    store = VolumeStore(connect, hub=deployment.name, image=deployment.notebook_image)
    configure_publishing(c, deployment, store)


def configure_containers(c: Any, deployment: DockerSettings) -> None:
    """Configure the container of every server."""
    c.DockerSpawner.remove = True
    c.DockerSpawner.extra_create_kwargs = {"labels": {HUB_LABEL: deployment.name}}
    c.DockerSpawner.extra_host_config = {
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        # Data loader workers and NCCL exchange tensors in shared memory. Docker's default of 64 MB would cause "Bus
        # error".
        "shm_size": SHARED_MEMORY,
        "log_config": {"type": "json-file", "config": {"max-size": "20m", "max-file": "2"}},
    }


def limit_swap(spawner: Any, _profile: Profile) -> None:
    """Include swap in the memory limit. By default, a server may swap as much again, which slows down all servers."""
    spawner.extra_host_config = {**spawner.extra_host_config, "memswap_limit": spawner.mem_limit}
