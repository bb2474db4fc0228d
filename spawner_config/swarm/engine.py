"""What a swarm asks of the hub's engine: the hub refuses to start without it, and `make doctor` says so before.

Standard library only, for the doctor's sake.
"""

from __future__ import annotations

from typing import Any

OLDEST_API = (1, 44)
"""Of engine 25, the first one that lets a service do without new privileges."""


def missing_features(info: dict[str, Any], version: str) -> tuple[str, str] | None:
    """Return what an engine lacks, by what ``docker info`` and its API's ``version`` say, and the remedy."""
    if not (info.get("Swarm") or {}).get("ControlAvailable"):
        return (
            "FARANDOLE_DEPLOYMENT is swarm, and the engine on this machine is no manager of a swarm.",
            "Run `docker swarm init --advertise-addr ADDRESS` here, and what it prints on each other machine.",
        )
    if tuple(map(int, version.split("."))) < OLDEST_API:
        return "FARANDOLE_DEPLOYMENT is swarm, and this engine is too old.", "Install engine 25 or newer everywhere."
    return None
