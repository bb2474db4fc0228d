"""The deployment on Kubernetes by the chart Zero to JupyterHub, which sets up hub, proxy and logins itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spawner_config.kubernetes import configure_servers
from spawner_config.kubernetes_settings import KubernetesSettings, service_url

if TYPE_CHECKING:
    from spawner_config.profiles import Catalogue
    from spawner_config.settings import Settings


def configure(c: Any, _settings: Settings, catalogue: Catalogue) -> None:
    """Set up users' servers, and leave the rest as the chart has it."""
    ours = KubernetesSettings.from_environment(os.environ)
    proxy = service_url(os.environ, "proxy-public", "FARANDOLE_PROXY_ADDRESS")
    configure_servers(c, ours, catalogue, proxy=proxy)
