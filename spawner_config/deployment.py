"""Configuration that the deployments on Docker, on a swarm and on Kubernetes share."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from spawner_config.access.logins import configure_logins
from spawner_config.access.secret_rules import check_proxy_token
from spawner_config.access.transport import HSTS
from spawner_config.database import database_url
from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Variables, Words
from spawner_config.origins.configure import configure_origins
from spawner_config.profiles.options import OptionsError
from spawner_config.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spawner_config.profiles.profiles import Profile, ProfileSet
    from spawner_config.settings import Settings

HOME = "/home/user"
RUNTIME = {"JUPYTER_RUNTIME_DIR": "/tmp/jupyter-runtime"}
"""Jupyter's runtime files are not in the home, so that users whose home is full can still open a kernel."""
HUB_PORT = 8081
PROXY_PORT = 8000
ANSWER_SECONDS = 120
ROUTES_SECONDS = 20


class ServerSettings(Variables):
    """The settings of a hub whose servers run from images; ``memory`` is the limit for profiles without one."""

    name: str = "farandole"
    notebook_image: str = Field(description="the name of the notebook image")
    gpu_image: str = Field(default_factory=lambda data: data["notebook_image"])
    serving_image: str = ""
    serving_torch_image: str = ""
    model_images: Words = Field((), description="names of images, such as 'registry.example.org/lab/*'")
    memory: str = Field("4G", pattern=MEMORY, description=MEMORY_EXAMPLE)
    shares: Shares = Shares()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the FARANDOLE_ variables; raises `SettingsError`."""
        # The field `shares` has no variable of its own: it combines two variables, which `Shares` reads.
        found = super().from_environment({**environ, "FARANDOLE_SHARES": ""})
        return found.model_copy(update={"shares": Shares.from_environment(environ, found.name)})

    def image_of(self, profile: Profile, runtime: str = "", model_image: str = "") -> str:
        """Return the image for a profile's servers.

        For an endpoint whose model needs a ``runtime``, it is a serving image, and for one whose model is in its image,
        ``model_image``. Raises `OptionsError` if the hub has no image with this runtime.
        """
        if model_image:
            return model_image
        if runtime:
            return self._serving_image_of(runtime)
        return profile.image or (self.gpu_image if profile.gpus else self.notebook_image)

    def _serving_image_of(self, runtime: str) -> str:
        image, setting = self.serving_image, "FARANDOLE_SERVING_IMAGE"
        if runtime == "torch":
            image, setting = self.serving_torch_image, "FARANDOLE_SERVING_TORCH_IMAGE"
        if not image:
            raise OptionsError(
                f"This hub has no image for endpoints with the runtime {runtime!r}. The administrator must set "
                f"{setting}, as the docker-compose.yml or the settings.env.example of the hub's version does."
            )
        return image

    @property
    def serving_images(self) -> dict[str, str]:
        """The variables that tell notebooks which serving images `%models publish` adds models to."""
        names = {
            "FARANDOLE_SERVING_IMAGE": self.serving_image,
            "FARANDOLE_SERVING_TORCH_IMAGE": self.serving_torch_image,
        }
        return {key: name for key, name in names.items() if name}

    def check_data(self, profiles: ProfileSet) -> None:
        """Raise `SettingsError` if a profile lists a data volume that is not in FARANDOLE_SHARED_VOLUMES."""
        for profile in profiles.profiles:
            self.shares.check(profile.name, profile.data)


@dataclass(frozen=True, kw_only=True)
class Front:
    """How browsers reach a hub: whether over HTTPS, and on which port.

    ``reached_by`` is the setting that lets other machines reach the hub, or an empty string if only this machine can.
    """

    https: bool
    port: int
    reached_by: str = ""


def configure_proxied_hub(
    c: Any, settings: Settings, *, hub_url: str, proxy_api: str, token: str, front: Front
) -> None:
    """Configure a hub whose proxy is in a separate container; ``token`` is the proxy token's name in errors."""
    c.JupyterHub.bind_url = f"http://:{PROXY_PORT}"
    c.JupyterHub.hub_bind_url = f"http://0.0.0.0:{HUB_PORT}"
    c.JupyterHub.hub_connect_url = hub_url
    # The proxy runs in a separate container, so that a restart of the hub interrupts no connections or servers.
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = proxy_api
    c.JupyterHub.cleanup_servers = False
    # A restarted proxy has lost its routes. The hub checks and restores them at this interval.
    c.JupyterHub.last_activity_interval = ROUTES_SECONDS
    c.JupyterHub.db_url = database_url(os.environ, settings.state)
    check_proxy_token(os.environ, token)
    configure_logins(c, os.environ)
    c.Spawner.http_timeout = ANSWER_SECONDS
    configure_origins(c, settings, https=front.https, port=front.port, reached_by=front.reached_by)
    if front.https:
        # The hub cannot detect HTTPS by itself, because the proxy in front of it always uses plain HTTP.
        c.JupyterHub.tornado_settings["cookie_options"] = {"secure": True}
        # With separate hosts for users, all hosts below the hub's belong to them.
        below = "" if settings.one_origin else "; includeSubDomains"
        c.JupyterHub.tornado_settings["headers"] = {"Strict-Transport-Security": f"{HSTS}{below}"}
