"""What users share, as volumes of the engine: which a server gets; a group's folder is made where it is missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from docker.errors import NotFound

from spawner_config.labels import HUB_LABEL
from spawner_config.shares import GROUPS_PLACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import docker

    from spawner_config.shares import DataSet, GroupFolder, Shares


class SharedVolumeError(RuntimeError):
    """Raised when a volume that a server is to have is not there; names it and what to do."""


class SharedVolumes:
    """The shared volumes of the hub ``name`` on the engine behind ``client``, which nobody else may use."""

    def __init__(self, client: docker.APIClient, shares: Shares, *, name: str) -> None:
        self._client = client
        self._shares = shares
        self._name = name
        self._lock = asyncio.Lock()

    def binds(self, user: str, groups: set[str], data_sets: Sequence[str] | None) -> dict[str, dict[str, str]]:
        """Return what a user's server has, in the form of the engine's client; ``data_sets`` are its profile's."""
        data = {each.volume: {"bind": each.path, "mode": "ro"} for each in self._shares.data_of(data_sets)}
        folders = {
            each.volume(self._name): {"bind": each.path, "mode": "rw"} for each in self._shares.folders_of(user, groups)
        }
        return {**data, **folders}

    async def ensure(
        self, user: str, groups: set[str], data_sets: Sequence[str] | None, *, image: str, network: str
    ) -> None:
        """Return once all volumes of `binds` are there; ``image`` and ``network`` are those of the server to start.

        Raises `SharedVolumeError`.
        """
        # The lock keeps two members from making one volume, and the client to one thread.
        async with self._lock:
            for data in self._shares.data_of(data_sets):
                await asyncio.to_thread(self._check, data)
            for folder in self._shares.folders_of(user, groups):
                await asyncio.to_thread(self._ensure_folder, folder, image, network)

    def _check(self, data: DataSet) -> None:
        if not self._is_there(data.volume):
            raise SharedVolumeError(
                f"There is no volume {data.volume!r}, which FARANDOLE_SHARED_VOLUMES names. The administrator makes it "
                f"(docker volume create {data.volume}) and fills it, or takes it out of .env."
            )

    def _is_there(self, volume: str) -> bool:
        try:
            self._client.inspect_volume(volume)
        except NotFound:
            return False
        return True

    def _ensure_folder(self, folder: GroupFolder, image: str, network: str) -> None:
        """Make a group's volume by a container that never runs.

        The engine gives a new volume the owner of the image's folder at which it is first mounted. That of a group is
        mounted where the image has nothing, and would be root's.
        """
        volume = folder.volume(self._name)
        if self._is_there(volume):
            return
        binds = {volume: {"bind": GROUPS_PLACE, "mode": "rw"}}
        host: dict[str, Any] = self._client.create_host_config(binds=binds, network_mode=network)
        made = self._client.create_container(image, host_config=host, labels={HUB_LABEL: self._name})
        self._client.remove_container(made["Id"])
