"""The scopes of a server's token, which depend only on the server's name.

The hub determines the scopes before it stores the server's options, so the scopes cannot depend on the options.
`spawner_config.profiles.options` ensures that only servers with a worker's name can have a worker's options, and that
only those with an endpoint's name can have an endpoint's.
"""

from __future__ import annotations

import re
from typing import Any

WORKER_NAME = re.compile(r"[a-z0-9][a-z0-9-]*-w[0-9]+")
ENDPOINT_PREFIX = "serve-"
"""The beginning of the names of servers that are endpoints. It must be equal to that in
`farandole.driver.endpoints.client`, which is not imported because `make doctor` runs without packages."""
ENDPOINT_NAME = re.compile(rf"{ENDPOINT_PREFIX}[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")

WORKER_SCOPES = [
    # The hub needs this scope to receive activity reports. JupyterHub would add the scope if it were missing.
    "users:activity!user",
    "access:servers!server",
]
ENDPOINT_SCOPES = WORKER_SCOPES
NOTEBOOK_SCOPES = ["users:activity!user", "access:servers!user", "servers!user", "read:users!user"]


def is_worker(server_name: str) -> bool:
    """Return whether a server with this name is a worker; workers are named ``<cluster>-w<i>``."""
    return WORKER_NAME.fullmatch(server_name) is not None


def is_endpoint(server_name: str) -> bool:
    """Return whether a server with this name is an endpoint, which serves a model or runs a user's own server."""
    return ENDPOINT_NAME.fullmatch(server_name) is not None and not is_worker(server_name)


def is_notebook(server_name: str) -> bool:
    """Return whether a server with this name is a notebook server."""
    return not is_worker(server_name) and not is_endpoint(server_name)


def role_of(server_name: str) -> str:
    """Return the role of a server: ``worker``, ``endpoint`` or ``notebook``."""
    if is_worker(server_name):
        return "worker"
    return "endpoint" if is_endpoint(server_name) else "notebook"


def server_token_scopes(spawner: Any) -> list[str]:
    """Return the scopes of a server's token (``c.Spawner.server_token_scopes``)."""
    if is_worker(spawner.name):
        return WORKER_SCOPES
    return ENDPOINT_SCOPES if is_endpoint(spawner.name) else NOTEBOOK_SCOPES
