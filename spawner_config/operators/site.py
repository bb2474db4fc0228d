"""What the operators' service knows of the hub that starts it: the limits, the sizes of servers and the state folder.

This module imports only the standard library, so that the service starts fast: the hub waits for it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "FARANDOLE_OPERATORS_SITE"


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a server: its ranks, its GPUs, and its memory limit in bytes; None means no limit."""

    ranks: int
    gpus: int
    memory: int | None


@dataclass(frozen=True, kw_only=True)
class Site:
    """A hub, as its operators' service sees it.

    - ``state``: the hub's state folder
    - ``profiles``: the sizes of servers; the first is the default
    - ``limits``: the limits for each user
    - ``local``: whether servers are processes of this machine, so that their memory and homes can be measured
    - ``engine``: the address of the engine that tells the memory of servers, or an empty string
    - ``containers``: how the names of the servers' containers begin
    - ``secure``: whether browsers may send cookies only over HTTPS
    - ``danger``: what the page warns of, or an empty string
    - ``mirror``: the address of the hub's mirror, or an empty string
    """

    state: Path
    profiles: Mapping[str, Size]
    limits: Mapping[str, int]
    local: bool
    engine: str = ""
    containers: str = ""
    secure: bool = False
    danger: str = ""
    mirror: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The site as an environment variable for the service."""
        return {VARIABLE: json.dumps(asdict(self), default=str)}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Site:
        """Read the site from the service's environment."""
        found = json.loads(environ[VARIABLE])
        profiles = {name: Size(**size) for name, size in found.pop("profiles").items()}
        return cls(**{**found, "state": Path(found["state"]), "profiles": profiles})


def memory_bytes(text: str) -> int:
    """Return the number of bytes of a memory limit such as ``512M`` or ``4G``, as JupyterHub counts them."""
    return int(text[:-1]) << 10 * (1 + "KMGT".index(text[-1]))
