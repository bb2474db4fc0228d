"""Configures the hub of docker-compose.yml, for servers on a single machine or on a swarm."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from farandole.datasets.versions.publish import AT_HUB

from spawner_config.access.transport import check_transport
from spawner_config.containers.names import slug
from spawner_config.containers.proxy import NetworkedProxy
from spawner_config.deployment import HOME, HUB_PORT, PROXY_PORT, RUNTIME, Front, configure_proxied_hub
from spawner_config.form import options_form
from spawner_config.operators.configure import PORT as OPERATORS_PORT
from spawner_config.operators.configure import configure_operators
from spawner_config.origins.certificates import admit_certificates
from spawner_config.origins.compose import HTTPS_PROFILES, has_https, open_to_others, profiles, public_port
from spawner_config.origins.configure import check_domain
from spawner_config.profiles.options import OptionsHook
from spawner_config.publishing.settings import Publishers
from spawner_config.settings import check_together
from spawner_config.snapshots.configure import configure_snapshots
from spawner_config.snapshots.settings import PORT as SNAPSHOTS_PORT
from spawner_config.streams.configure import configure_streams, stream_server
from spawner_config.streams.restarts import RestartWatch
from spawner_config.streams.settings import StreamSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    import docker

    from spawner_config.containers.networks import UserNetworks
    from spawner_config.containers.settings import DockerSettings
    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

START_SECONDS = 600
"""The time limit for a start in seconds, which includes pulling the image at the first start on a machine."""
BACK = "hub-api"
"""The hub's name in the network that it shares with other services only."""
STREAMS = "streams"
"""The compose profile with the NATS server, and the name of this server in users' networks."""
STREAMS_BACK = "streams-api"
"""The name of the NATS server in the network that it shares with other services only."""
STREAMS_URL = "tls://{}:4222"
N = TypeVar("N", bound="UserNetworks")


def services(name: str) -> dict[str, str]:
    """Return the containers that every user of the hub ``name`` must reach, with their names in users' networks."""
    needed = {f"{name}-hub": "hub", f"{name}-proxy": "proxy"}
    return needed | dict.fromkeys(optional_services(name), STREAMS)


def optional_services(name: str) -> set[str]:
    """Return those of the `services` without which servers can start."""
    return {f"{name}-{STREAMS}"} if STREAMS in profiles(os.environ) else set()


def server_prefix(deployment: DockerSettings) -> str:
    """Return how the names of the servers' containers begin."""
    return f"{deployment.name}-server"


def configure_hub(
    c: Any, settings: Settings, profile_set: ProfileSet, deployment: DockerSettings, *, engine: str = ""
) -> None:
    """Configure a hub in a container, with the proxy in another container.

    ``engine`` is the address of the engine that has the containers of all servers, or empty if it has only some.
    """
    deployment.check_data(profile_set)
    front = Front(https=has_https(os.environ), port=public_port(os.environ), reached_by=open_to_others(os.environ))
    check_together(lambda: check_transport(os.environ), lambda: check_domain(settings, front.reached_by))
    # Only these services have these names in the networks of the hub, because users cannot name their containers.
    c.AccountAuthenticator.tls_servers = sorted(HTTPS_PROFILES & profiles(os.environ))
    if "caddy" in profiles(os.environ):
        admit_certificates(c, settings)
    configure_proxied_hub(
        c,
        settings,
        hub_url=f"http://hub:{HUB_PORT}",
        proxy_api="http://proxy-api:8001",
        token="FARANDOLE_PROXY_TOKEN",
        front=front,
    )
    # The services listen only in the network `back`, because the hub is in the networks of users as well.
    at = f"http://{BACK}:{OPERATORS_PORT}"
    configure_operators(
        c,
        settings,
        profile_set,
        url=at,
        bind=BACK,
        memory=deployment.memory,
        engine=engine,
        containers=server_prefix(deployment),
    )
    configure_snapshots(c, settings, url=f"http://{BACK}:{SNAPSHOTS_PORT}", bind=BACK)
    if streams := _streams():
        configure_streams(c, streams, hub_url=STREAMS_URL.format(STREAMS_BACK), users_url=STREAMS_URL.format(STREAMS))


def user_networks(c: Any, deployment: DockerSettings, kind: type[N], client: docker.APIClient) -> N:
    """Return the users' networks, and connect the hub's services to the existing ones.

    The hub's proxy class repeats this whenever a service has been recreated.
    """
    networks = kind(
        client,
        name=deployment.name,
        services=services(deployment.name),
        optional=optional_services(deployment.name),
        addresses=deployment.addresses,
        internet=deployment.internet,
        mtu=deployment.mtu,
    )
    networks.rejoin()
    streams = _streams()
    watch = RestartWatch(stream_server(streams, STREAMS_URL.format(STREAMS_BACK))) if streams else None
    c.JupyterHub.proxy_class = type("Proxy", (NetworkedProxy,), {"networks": networks, "watch": watch})
    return networks


def _streams() -> StreamSettings | None:
    """Return the settings of the NATS server, or None if its compose profile is not enabled."""
    return StreamSettings.from_environment(os.environ) if STREAMS in profiles(os.environ) else None


def configure_servers(
    c: Any, profile_set: ProfileSet, deployment: DockerSettings, finish: Callable[[Any, Profile], None]
) -> None:
    """Configure all servers; ``finish`` applies the parts of a profile that only this deployment's spawner supports."""
    # With only the deployment's name as prefix, the server of a user named "hub" would get the name of the hub's
    # container.
    c.DockerSpawner.prefix = server_prefix(deployment)
    c.DockerSpawner.escape = slug
    c.DockerSpawner.image = deployment.notebook_image
    c.DockerSpawner.pull_policy = "ifnotpresent"
    c.DockerSpawner.use_internal_ip = True
    c.DockerSpawner.notebook_dir = HOME
    c.DockerSpawner.volumes = {f"{deployment.name}-home-{{username}}": HOME}
    c.Spawner.options_form = partial(options_form, profile_set, memory=deployment.memory)
    c.Spawner.poll_interval = 5
    c.Spawner.start_timeout = START_SECONDS

    publishers = Publishers.from_environment(os.environ)

    def set_profile(spawner: Any, profile: Profile) -> None:
        spawner.image = deployment.image_of(profile, spawner.runtime, spawner.model_image)
        spawner.data_sets = profile.data
        own = {**deployment.shares.variables_of(profile.data), **publishers.variables(spawner, AT_HUB)}
        spawner.environment = {**spawner.environment, **own}
        spawner.mem_limit = profile.memory or deployment.memory
        finish(spawner, profile)

    c.Spawner.apply_user_options = OptionsHook(
        profile_set,
        python="python",
        environment={"FARANDOLE_HUB_URL": f"http://proxy:{PROXY_PORT}", **RUNTIME, **deployment.serving_images},
        args=[],
        model_images=deployment.model_images,
        finish=set_profile,
    )
