"""The folder that all machines of a swarm share, with a subfolder for each volume."""

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
"""The command that creates a folder, without the folder's path. It runs in a container that mounts the share at
`PLACE`."""
NFS = re.compile(r"nfs://(?P<server>[A-Za-z0-9][A-Za-z0-9.-]*)(?P<path>/[A-Za-z0-9_./-]*)")
PATH = re.compile(r"/[A-Za-z0-9_./-]+")


@dataclass(frozen=True, kw_only=True)
class SharedHome:
    """The folder of all volumes: ``path`` on the NFS server ``server``, or on each machine if ``server`` is empty."""

    path: str
    server: str = ""

    def __post_init__(self) -> None:
        """Raise `SettingsError` if the path contains '..'."""
        if ".." in PurePosixPath(self.path).parts:
            raise SettingsError(f"{KEY} contains '..'. Give the folder's direct path.")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SharedHome | None:
        """Read FARANDOLE_SWARM_HOMES; return None if each machine has separate homes. Raises `SettingsError`."""
        text = environ.get(KEY) or ""
        if not text:
            return None
        if nfs := NFS.fullmatch(text):
            return cls(server=nfs["server"], path=nfs["path"].rstrip("/") or "/")
        if PATH.fullmatch(text):
            return cls(path=text.rstrip("/"))
        raise SettingsError(
            f"{KEY} is {text!r}. It must be 'nfs://SERVER/FOLDER', or the path of a folder that is the same on all "
            "machines, such as '/mnt/homes', or empty if each machine has separate homes."
        )

    def options(self, volume: str, hub: str) -> dict[str, str]:
        """Return the options of the volume driver ``local`` for a ``volume`` of the hub with the name ``hub``.

        The volume `whole` is the shared folder itself; each other volume is a subfolder with the volume's name.
        """
        device = PurePosixPath(self.path) / ("" if volume == whole(hub) else volume)
        if self.server:
            return {"type": "nfs", "o": f"addr={self.server},rw,hard,nosuid,nodev", "device": f":{device}"}
        return {"type": "none", "o": "bind", "device": str(device)}


def whole(hub: str) -> str:
    """Return the name of the volume that contains the whole shared folder, in which the hub creates subfolders."""
    return f"{hub}-homes"
