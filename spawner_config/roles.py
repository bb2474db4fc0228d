"""The scopes of a server, which follow from its name.

The hub requests the scopes of a server's token before it stores the server's options, so only the name can decide.
`spawner_config.profiles.options` ensures that the options of a worker come with the name of a worker.
"""

from __future__ import annotations

import re
from typing import Any

WORKER_NAME = re.compile(r"[a-z0-9][a-z0-9-]*-w[0-9]+")

WORKER_SCOPES = [
    # Without this scope, the hub does not learn that the server is in use. JupyterHub adds this scope if it is missing.
    "users:activity!user",
    "access:servers!server",
]
NOTEBOOK_SCOPES = ["users:activity!user", "access:servers!user", "servers!user", "read:users!user"]


def is_worker(server_name: str) -> bool:
    """Return whether a server of that name is a worker, ``<cluster>-w<i>``."""
    return WORKER_NAME.fullmatch(server_name) is not None


def server_token_scopes(spawner: Any) -> list[str]:
    """Return the scopes of the server's token (for ``c.Spawner.server_token_scopes``)."""
    return WORKER_SCOPES if is_worker(spawner.name) else NOTEBOOK_SCOPES
