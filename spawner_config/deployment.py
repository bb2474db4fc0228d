"""The part of the configuration that the deployments with containers and with pods share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from spawner_config.access.logins import configure_logins
from spawner_config.access.secret_rules import check_proxy_token
from spawner_config.access.transport import HSTS
from spawner_config.database import database_url
from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Variables
from spawner_config.origins.configure import configure_origins
from spawner_config.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

HOME = "/home/user"
HUB_PORT = 8081
PROXY_PORT = 8000
ANSWER_SECONDS = 120
ROUTES_SECONDS = 20


class ServerSettings(Variables):
    """The settings of a hub whose servers run from images; ``memory`` is the limit if a profile has none."""

    name: str = "farandole"
    notebook_image: str = Field(description="the name of the notebook image")
    gpu_image: str = Field(default_factory=lambda data: data["notebook_image"])
    memory: str = Field("4G", pattern=MEMORY, description=MEMORY_EXAMPLE)
    shares: Shares = Shares()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the FARANDOLE_ variables; raises `SettingsError`."""
        # The field `shares` is read from two other variables; there is no variable FARANDOLE_SHARES.
        found = super().from_environment({**environ, "FARANDOLE_SHARES": ""})
        return found.model_copy(update={"shares": Shares.from_environment(environ, found.name)})

    def image_of(self, profile: Profile) -> str:
        """Return the image of a profile's servers."""
        return profile.image or (self.gpu_image if profile.gpus else self.notebook_image)

    def check_data(self, profiles: ProfileSet) -> None:
        """Raise `SettingsError` if a profile lists a data volume that is not shared."""
        for profile in profiles.profiles:
            self.shares.check(profile.name, profile.data)


@dataclass(frozen=True, kw_only=True)
class Front:
    """What is in front of a hub: whether browsers speak HTTPS, at which port, and how other machines reach it.

    ``reached_by`` is the setting that lets other machines reach the hub, or an empty string.
    """

    https: bool
    port: int
    reached_by: str = ""


def configure_proxied_hub(
    c: Any, settings: Settings, *, hub_url: str, proxy_api: str, token: str, front: Front
) -> None:
    """Set up a hub whose proxy runs elsewhere; ``token`` is the name of the proxy's token in error messages."""
    c.JupyterHub.bind_url = f"http://:{PROXY_PORT}"
    c.JupyterHub.hub_bind_url = f"http://0.0.0.0:{HUB_PORT}"
    c.JupyterHub.hub_connect_url = hub_url
    # The proxy has a separate container, so a restart of the hub ends no connection and no server.
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = proxy_api
    c.JupyterHub.cleanup_servers = False
    # A proxy that restarted has lost its routes; the hub restores them at this interval.
    c.JupyterHub.last_activity_interval = ROUTES_SECONDS
    c.JupyterHub.db_url = database_url(os.environ, settings.state)
    check_proxy_token(os.environ, token)
    configure_logins(c, os.environ)
    c.Spawner.http_timeout = ANSWER_SECONDS
    configure_origins(c, settings, https=front.https, port=front.port, reached_by=front.reached_by)
    if front.https:
        # The hub cannot detect HTTPS: the last proxy before it speaks HTTP.
        c.JupyterHub.tornado_settings["cookie_options"] = {"secure": True}
        c.JupyterHub.tornado_settings["headers"] = {"Strict-Transport-Security": HSTS}
