"""The engine features that a swarm requires. `make doctor` checks them, and the hub checks them again when it starts.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

from __future__ import annotations

from typing import Any

OLDEST_API = (1, 44)
"""The API version of engine 25, the first engine that supports services with "no new privileges"."""


def missing_features(info: dict[str, Any], version: str) -> tuple[str, str] | None:
    """Return a missing feature and its remedy, given ``docker info`` and the ``version`` of the engine's API."""
    if not (info.get("Swarm") or {}).get("ControlAvailable"):
        return (
            "FARANDOLE_DEPLOYMENT is swarm, and the engine on this machine is not a manager of a swarm.",
            "Run `docker swarm init --advertise-addr ADDRESS` here, and its printed command on each other machine.",
        )
    if tuple(map(int, version.split("."))) < OLDEST_API:
        return "FARANDOLE_DEPLOYMENT is swarm, and this engine is too old.", "Install engine 25 or newer everywhere."
    return None
