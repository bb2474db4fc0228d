"""Configures publications on a hub with containers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from spawner_config.publishing.handlers import handlers
from spawner_config.publishing.publications import Publications
from spawner_config.publishing.settings import Publishers

if TYPE_CHECKING:
    from spawner_config.deployment import ServerSettings
    from spawner_config.publishing.publications import VersionStore


def configure_publishing(c: Any, deployment: ServerSettings, store: VersionStore) -> None:
    """Let the publishers whom FARANDOLE_DATA_PUBLISHERS names publish; without any, the hub has no such requests."""
    publishers = Publishers.from_environment(os.environ).names
    if publishers:
        publications = Publications(store, publishers, deployment.shares, hub=deployment.name)
        c.JupyterHub.extra_handlers = [*(c.JupyterHub.get("extra_handlers") or []), *handlers(publications)]
