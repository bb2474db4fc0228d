"""The features that a swarm requires of the hub's engine, checked by the hub at its start and by `make doctor`.

Standard library only: `make doctor` imports this module on machines without packages.
"""

from __future__ import annotations

from typing import Any

OLDEST_API = (1, 44)
"""The API of engine 25, which is the first that accepts services without new privileges."""


def missing_features(info: dict[str, Any], version: str) -> tuple[str, str] | None:
    """Return a missing feature and its remedy, by ``docker info`` and the ``version`` of the engine's API."""
    if not (info.get("Swarm") or {}).get("ControlAvailable"):
        return (
            "FARANDOLE_DEPLOYMENT is swarm, and the engine on this machine is not a manager of a swarm.",
            "Run `docker swarm init --advertise-addr ADDRESS` here, and its printed command on each other machine.",
        )
    if tuple(map(int, version.split("."))) < OLDEST_API:
        return "FARANDOLE_DEPLOYMENT is swarm, and this engine is too old.", "Install engine 25 or newer everywhere."
    return None
