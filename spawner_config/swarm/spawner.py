"""The deployment on a swarm: the hub runs on a manager, and its servers run on any machine of the swarm."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import docker
from dockerspawner import SwarmSpawner

from spawner_config.containers.compose_hub import configure_hub, configure_servers, user_networks
from spawner_config.containers.images import ImagePulls
from spawner_config.containers.network_spawner import NetworkedSpawner
from spawner_config.containers.settings import DockerSettings
from spawner_config.containers.shared_volumes import SharedVolumeError
from spawner_config.deployment import HUB_PORT
from spawner_config.gpus.requests import gpu_environment
from spawner_config.labels import CLUSTER_LABEL, HUB_LABEL
from spawner_config.lifecycle.spawn_throttle import BurstSpawner
from spawner_config.publishing.configure import configure_publishing
from spawner_config.publishing.containers import VolumeStore
from spawner_config.refusals import refused_start
from spawner_config.roles import is_worker
from spawner_config.swarm.data_labels import label_node
from spawner_config.swarm.home_volumes import SwarmVolumes
from spawner_config.swarm.overlays import NETWORK_LABEL, UserOverlays
from spawner_config.swarm.placement import NODE_LABEL, choose_node
from spawner_config.swarm.services import NodeNeeds, task_template
from spawner_config.swarm.settings import (
    check_engine,
    check_firewall,
    check_groups,
    node_needs,
    with_overlay_addresses,
)
from spawner_config.swarm.shared_home import SharedHome
from spawner_config.swarm.tasks import ENDED, Task, newest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jupyterhub.spawner import SpawnException

    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

SERVER_LABEL = "farandole.server"
POLL_SECONDS = 0.5
"""The interval in seconds between requests to the engine about a task that is starting or ending."""
CHOSEN_SECONDS = 5.0
"""How many seconds a worker waits for its chosen node before it may run on any other node."""
PLACE_SECONDS = 10.0
"""How many seconds a server without --wait waits for a node, because the swarm may still count a server that has just
ended."""
QUEUE_SECONDS = 540.0
"""How many seconds a server with --wait waits for a node; the hub cancels a start after 600 s."""
GONE_SECONDS = 30.0


class FarandoleSwarmSpawner(NetworkedSpawner, BurstSpawner, SwarmSpawner):  # type: ignore[misc]
    """Runs each server as a service with one task, in its user's network across all machines.

    A task that ends is not restarted. `poll` reports that the server has ended, and the user or the driver starts a new
    server.
    """

    shared_volumes: ClassVar[SwarmVolumes]
    hub_label: ClassVar[str]
    hub_node: ClassVar[str]
    """The name of the hub, and the id of the hub's node, set on the subclass that `configure` creates."""
    choosing: ClassVar[asyncio.Lock]
    """Held while a worker's node is chosen and its service is created, so that the next choice counts this worker."""
    placing: ClassVar[set[FarandoleSwarmSpawner]]
    """The servers of the hub for which the swarm may not have found a node yet."""
    needs = NodeNeeds()
    """The requirements for the server's node, which its profile sets."""
    gpus = 0
    gpu_class: str | None = None
    wait_for_gpus = False
    _chosen: str | None = None
    _waits_for = ""

    @property
    def cluster(self) -> str:
        """The name of the worker's cluster with the user's slug, so that it is unique among all users."""
        return f"{self.user_slug}/{self.name.rpartition('-w')[0]}"

    @property
    def only_waiting(self) -> int:
        """The number of servers for which the swarm currently finds no node."""
        return sum(bool(each._waits_for) for each in self.placing)

    async def create_object(self) -> Any:
        """Create the service after its volumes exist and, for a worker, after a node has been chosen.

        A node is also chosen for a server that can run anywhere if its profile names data sets that some nodes have.
        """
        await self.ensure_volumes()
        try:
            await self.shared_volumes.make(self.volume_binds, image=self.image)
        except SharedVolumeError as exc:
            raise refused_start(str(exc), reason="volume") from exc
        is_free = self.shared_volumes.everywhere or bool(self.model_image)
        if not is_worker(self.name) and not (is_free and self.needs.data):
            self._chosen = None
            return await self._create_service(None if is_free else self.hub_node)
        async with self.choosing:
            nodes = await self.docker("nodes")
            others = await self.docker("services", filters={"label": [f"{HUB_LABEL}={self.hub_label}"]})
            self._chosen = choose_node(nodes, others, self.cluster, self.needs)
            return await self._create_service(self._chosen)

    async def start_object(self) -> None:
        """Wait until the task is running; raises `SpawnException` with the swarm's reason if it cannot run."""
        self.placing.add(self)
        try:
            await self._find_place()
        finally:
            self.placing.discard(self)
        # This loop needs no timeout, because JupyterHub limits the duration of a start. Pulling the image can take
        # long.
        while not (task := await self.task()) or not task.runs:
            if task is None or task.over:
                raise await self._not_started(task)
            await asyncio.sleep(POLL_SECONDS)

    async def get_ip_and_port(self) -> tuple[str, int]:
        """Return the server's address in its user's network, which does not change while the task exists."""
        task = await self.task()
        if task is None or self.network_name not in task.addresses:
            raise await self._not_started(task)
        return task.addresses[self.network_name], self.port

    async def task(self) -> Task | None:
        """Return the server's task, or None if the service does not exist."""
        try:
            return newest(await self.docker("tasks", filters={"service": self.object_name}))
        except docker.errors.NotFound:
            return None

    async def poll(self) -> Any:
        """Return None while the server is running or starting, 0 if its service does not exist, else how it ended."""
        task = await self.task()
        if task is None:
            return 0
        return task.end if task.over else None

    async def remove_object(self) -> None:
        """Remove the service, and return after its container is removed."""
        await self.remove_named(self.object_name)

    async def remove_named(self, name: str) -> None:
        """Remove the service with this name if it exists; return after its container is removed or its node is down."""
        try:
            await self.docker("remove_service", name)
        except docker.errors.NotFound:
            self.log.debug("There is no service %s", name)
        loop = asyncio.get_running_loop()
        end = loop.time() + GONE_SECONDS
        while left := await self._left_of(name):
            if loop.time() > end:
                # This does not prevent a new service with the same name, because each task's container has a unique
                # name.
                self.log.warning("%s has not ended on node %s", name, ", ".join(task.node for task in left))
                return
            await asyncio.sleep(POLL_SECONDS)

    async def run_post_stop_hook(self) -> None:
        """Remove the service of the task that ended, then run the deployment's post-stop hook."""
        try:
            await self.remove_named(self.object_name)
        finally:
            await super().run_post_stop_hook()

    def get_env(self) -> dict[str, str]:
        """Return the server's environment, in which only the swarm can select GPUs."""
        return gpu_environment(super().get_env(), has_gpus=bool(self.needs.gpus))

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the progress events of a start, for the spawn page and `%cluster start`.

        ``queue`` is 1 while the server is waiting for a node. The hub closes this generator at the end of the start.
        """
        async for event in super().progress():
            yield event
        shown = ""
        while True:
            if self.wait_for_gpus and self._waits_for != shown:
                shown = self._waits_for
                message = f"Waiting for a place in the swarm: {shown}" if shown else "Place found, starting"
                yield {"progress": 10 if shown else 50, "message": message, "queue": int(bool(shown))}
            await asyncio.sleep(POLL_SECONDS)

    async def _create_service(self, node: str | None) -> Any:
        """Create the service, on ``node`` if it is not None."""
        worker = {CLUSTER_LABEL: self.cluster} if is_worker(self.name) else {}
        return await self.docker(
            "create_service",
            task_template(
                image=self.image,
                command=await self.get_command(),
                environment=self.get_env(),
                mounts=self.shared_volumes.mounts(self.volume_binds, self.homes, self.user.name),
                network=self.network_name,
                needs=self.needs,
                constraints=[f"node.id=={node}"] if node else [],
                memory=self.mem_limit,
                reserved_memory=self.mem_guarantee,
                cpus=self.cpu_limit,
            ),
            name=self.object_name,
            labels={
                HUB_LABEL: self.hub_label,
                NETWORK_LABEL: self.network_name,
                SERVER_LABEL: self.object_name,
                **({NODE_LABEL: node} if node else {}),
                **worker,
            },
            # With this mode, the service's name resolves to the address of the container itself. Ranks need this when
            # they look up their own names.
            endpoint_spec={"Mode": "dnsrr"},
        )

    async def _find_place(self) -> None:
        """Wait until the task has a node, preferably the chosen node; raises `SpawnException` if it gets none."""
        if self._chosen and not await self._placed(CHOSEN_SECONDS):
            await self.remove_named(self.object_name)
            made = await self._create_service(None)
            self.object_id = made[self.object_id_key]
        if not await self._placed(QUEUE_SECONDS if self.wait_for_gpus else PLACE_SECONDS):
            raise _no_place(self._waits_for)

    async def _placed(self, seconds: float) -> bool:
        """Return whether the swarm finds a node within ``seconds``; if not, `_waits_for` contains the reason."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (task := await self.task()) is None or task.searching:
            self._waits_for = task.reason if task else ""
            if loop.time() > end:
                return False
            await asyncio.sleep(POLL_SECONDS)
        self._waits_for = ""
        return True

    async def _left_of(self, name: str) -> list[Task]:
        """Return the tasks of a service that have not ended, without those on nodes that are down."""
        # Find the tasks by their label, because they may exist longer than the service.
        found = await self.docker("tasks", filters={"label": [f"{SERVER_LABEL}={name}"]})
        left = [task for task in map(Task.of, found) if task.state not in ENDED]
        if not left:
            return []
        down = {node["ID"] for node in await self.docker("nodes") if node["Status"]["State"] == "down"}
        return [task for task in left if task.node not in down]

    async def _not_started(self, task: Task | None) -> SpawnException:
        """Return the error for a task that ended, including its machine's name, which is not in the swarm's reason."""
        if task is None:
            return _not_started("its service was removed")
        names = {node["ID"]: node["Description"].get("Hostname", "") for node in await self.docker("nodes")}
        return _not_started(task.end, names.get(task.node, ""))


def configure(c: Any, settings: Settings, profile_set: ProfileSet) -> None:
    """Configure a hub on a manager of a swarm, with servers as services."""
    deployment = with_overlay_addresses(DockerSettings.from_environment(os.environ))
    folder = SharedHome.from_environment(os.environ)
    check_groups(deployment, folder)
    check_firewall(os.environ, deployment, folder)
    needs = {profile.name: node_needs(profile) for profile in profile_set.profiles}
    configure_hub(c, settings, profile_set, deployment)
    # The proxy keeps connections to the hub open. If it used the name `hub`, a connection might go through a user's
    # network, and requests would fail when that network is removed together with the user's last server.
    c.JupyterHub.hub_connect_url = f"http://hub-api:{HUB_PORT}"
    c.Spawner.hub_connect_url = f"http://hub:{HUB_PORT}"
    connect = partial(docker.APIClient, base_url=os.environ["DOCKER_HOST"], version="auto")
    client = connect()
    info = client.info()
    check_engine(info, client.api_version)
    label_node(client, info["Swarm"]["NodeID"], deployment.shares)
    networks = user_networks(c, deployment, UserOverlays, client)
    # `BurstSpawner.concurrent_starts` replaces this limit, which would also count servers that wait for a node.
    c.JupyterHub.concurrent_spawn_limit = 0
    # Set these as class attributes, because traitlets would copy a configured value for each spawner, while all
    # spawners must share the same objects.
    shared = {
        "networks": networks,
        "shared_volumes": SwarmVolumes(connect(), deployment.shares, folder, name=deployment.name),
        "pulls": ImagePulls(connect),
        "hub_label": deployment.name,
        "hub_node": info["Swarm"]["NodeID"],
        "choosing": asyncio.Lock(),
        "placing": set(),
    }
    c.JupyterHub.spawner_class = type("SwarmSpawner", (FarandoleSwarmSpawner,), shared)
    configure_servers(c, profile_set, deployment, finish=partial(set_place, needs))
    # All homes are also volumes of the hub's machine, where the folder is copied.
    configure_publishing(c, deployment, VolumeStore(connect, hub=deployment.name, image=deployment.notebook_image))


def set_place(needs: dict[str, NodeNeeds], spawner: Any, profile: Profile) -> None:
    """Set the requirements for the server's node, and reserve the profile's memory on it.

    The hub's machine has the images of notebooks and endpoints. It pulls an image of a model, because the engine filter
    and the hub inspect images there. The server's node then pulls the image itself.
    """
    spawner.needs = needs[profile.name]
    spawner.mem_guarantee = profile.memory
    spawner.pull_policy = "ifnotpresent" if spawner.model_image else "skip"


def _no_place(reason: str) -> SpawnException:
    return refused_start(
        f"The swarm has no place for this server: {reason or 'it gave no reason'}. Stop a server that you no longer "
        "need, choose another profile, or wait: `%cluster start --wait`, or the box on the spawn page.",
        reason="place",
    )


def _not_started(end: str, node: str = "") -> SpawnException:
    """Return the error for a server that the swarm could not start."""
    where = f" on {node}" if node else ""
    return refused_start(
        f"The swarm could not start this server{where} ({end}). If an image is missing, the administrator must load it "
        "on every machine or set FARANDOLE_REGISTRY in .env to a registry that all machines reach.",
        reason="start",
        status_code=500,
    )
