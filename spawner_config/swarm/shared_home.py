"""A folder that all machines of a swarm share: volumes of which each is a folder in it, the same on every machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from spawner_config.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "FARANDOLE_SWARM_HOMES"
PLACE = "/homes"
MKDIR = ("mkdir", "--parents", "--mode=700")
"""Where a container that makes a folder has the whole, and what it runs with that folder behind it."""
NFS = re.compile(r"nfs://(?P<server>[A-Za-z0-9][A-Za-z0-9.-]*)(?P<path>/[A-Za-z0-9_./-]*)")
PATH = re.compile(r"/[A-Za-z0-9_./-]+")


@dataclass(frozen=True, kw_only=True)
class SharedHome:
    """Where the volumes are: below ``path`` of an NFS ``server``, or of every machine's own tree where it is empty."""

    path: str
    server: str = ""

    def __post_init__(self) -> None:
        """Refuse a path that would lead elsewhere."""
        if ".." in PurePosixPath(self.path).parts:
            raise SettingsError(f"{KEY} leads through '..': give the folder's own path.")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SharedHome | None:
        """Read FARANDOLE_SWARM_HOMES; None where each machine has volumes of its own. Raises `SettingsError`."""
        text = environ.get(KEY) or ""
        if not text:
            return None
        if nfs := NFS.fullmatch(text):
            return cls(server=nfs["server"], path=nfs["path"].rstrip("/") or "/")
        if PATH.fullmatch(text):
            return cls(path=text.rstrip("/"))
        raise SettingsError(
            f"{KEY} is {text!r}. It must be 'nfs://SERVER/FOLDER', or the path of a folder that is the same on all "
            "machines, as '/mnt/homes'; empty where each machine has homes of its own."
        )

    def options(self, volume: str, hub: str) -> dict[str, str]:
        """Return the options of the engines' driver ``local`` for a volume of the hub of that name.

        The one of `whole` is this folder, each other one a folder of its name in it.
        """
        device = PurePosixPath(self.path) / ("" if volume == whole(hub) else volume)
        if self.server:
            return {"type": "nfs", "o": f"addr={self.server},rw,hard,nosuid,nodev", "device": f":{device}"}
        return {"type": "none", "o": "bind", "device": str(device)}


def whole(hub: str) -> str:
    """Return the name of the volume in which the hub of that name makes the folders."""
    return f"{hub}-homes"
