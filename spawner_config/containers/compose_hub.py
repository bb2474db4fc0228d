"""The hub of the compose file, wherever its servers run: hub, proxy and engine filter in containers of their own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar

from spawner_config.access.logins import configure_logins
from spawner_config.access.secret_rules import check_proxy_token
from spawner_config.containers.container_names import slug
from spawner_config.containers.proxy import NetworkedProxy
from spawner_config.database import database_url
from spawner_config.profiles.options import OptionsHook

if TYPE_CHECKING:
    from collections.abc import Callable

    import docker

    from spawner_config.containers.docker_settings import DockerSettings
    from spawner_config.containers.networks import UserNetworks
    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

HOME = "/home/user"
HUB_PORT = 8081
PROXY_PORT = 8000
START_SECONDS = 600
"""The first start on a host may pull the image."""
ANSWER_SECONDS = 120
ROUTES_SECONDS = 20
N = TypeVar("N", bound="UserNetworks")


def services(name: str) -> dict[str, str]:
    """Return the containers of the hub ``name`` that every user must reach, with their names in users' networks."""
    return {f"{name}-hub": "hub", f"{name}-proxy": "proxy"}


def configure_hub(c: Any, settings: Settings, catalogue: ProfileSet, ours: DockerSettings) -> None:
    """Set up a hub in a container, with the proxy in another."""
    for profile in catalogue.profiles:
        ours.shares.check(profile.name, profile.data)
    c.JupyterHub.bind_url = f"http://:{PROXY_PORT}"
    c.JupyterHub.hub_bind_url = f"http://0.0.0.0:{HUB_PORT}"
    c.JupyterHub.hub_connect_url = f"http://hub:{HUB_PORT}"
    # The proxy is another container: a restart of the hub drops nobody's connection, and ends no server.
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = "http://proxy-api:8001"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.db_url = database_url(os.environ, settings.state)
    check_proxy_token(os.environ)
    configure_logins(c, os.environ)
    if ours.https:
        # The hub itself cannot see it: the last proxy on the way speaks HTTP.
        c.JupyterHub.tornado_settings["cookie_options"] = {"secure": True}


def user_networks(c: Any, ours: DockerSettings, kind: type[N], client: docker.APIClient) -> N:
    """Return the users' networks; hub and proxy are in those that there are, now and whenever one was made anew."""
    networks = kind(
        client,
        name=ours.name,
        services=services(ours.name),
        addresses=ours.addresses,
        internet=ours.internet,
        mtu=ours.mtu,
    )
    networks.rejoin()
    c.JupyterHub.proxy_class = type("Proxy", (NetworkedProxy,), {"networks": networks})
    # A proxy that was restarted or made anew lacks routes and networks; at this pace the hub gives them back.
    c.JupyterHub.last_activity_interval = ROUTES_SECONDS
    return networks


def configure_servers(
    c: Any, catalogue: ProfileSet, ours: DockerSettings, finish: Callable[[Any, Profile], None]
) -> None:
    """Set what every server has; ``finish`` sets what only this deployment's spawner takes of a profile."""
    # Not the bare name: a user called "hub" would have the hub's own container.
    c.DockerSpawner.prefix = f"{ours.name}-server"
    c.DockerSpawner.escape = slug
    c.DockerSpawner.image = ours.notebook_image
    c.DockerSpawner.pull_policy = "ifnotpresent"
    c.DockerSpawner.use_internal_ip = True
    c.DockerSpawner.notebook_dir = HOME
    c.DockerSpawner.volumes = {f"{ours.name}-home-{{username}}": HOME}
    c.Spawner.poll_interval = 5
    c.Spawner.start_timeout = START_SECONDS
    c.Spawner.http_timeout = ANSWER_SECONDS

    def set_profile(spawner: Any, profile: Profile) -> None:
        spawner.image = profile.image or (ours.gpu_image if profile.gpus else ours.notebook_image)
        spawner.data_sets = profile.data
        spawner.mem_limit = profile.memory or ours.memory
        finish(spawner, profile)

    c.Spawner.apply_user_options = OptionsHook(
        catalogue,
        python="python",
        environment={"FARANDOLE_HUB_URL": f"http://proxy:{PROXY_PORT}"},
        args=[],
        finish=set_profile,
    )
