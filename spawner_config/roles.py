"""The scopes of a server's token, which depend only on the server's name.

The hub determines the scopes before it stores the server's options, so the scopes cannot depend on the options.
`spawner_config.profiles.options` ensures that only servers with a worker's name can have a worker's options.
"""

from __future__ import annotations

import re
from typing import Any

WORKER_NAME = re.compile(r"[a-z0-9][a-z0-9-]*-w[0-9]+")

WORKER_SCOPES = [
    # The hub needs this scope to receive activity reports. JupyterHub would add the scope if it were missing.
    "users:activity!user",
    "access:servers!server",
]
NOTEBOOK_SCOPES = ["users:activity!user", "access:servers!user", "servers!user", "read:users!user"]


def is_worker(server_name: str) -> bool:
    """Return whether a server with this name is a worker; workers are named ``<cluster>-w<i>``."""
    return WORKER_NAME.fullmatch(server_name) is not None


def server_token_scopes(spawner: Any) -> list[str]:
    """Return the scopes of a server's token (``c.Spawner.server_token_scopes``)."""
    return WORKER_SCOPES if is_worker(spawner.name) else NOTEBOOK_SCOPES
