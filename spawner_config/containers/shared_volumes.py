"""Creates the volumes of users and groups, and checks that users get only volumes that belong to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from docker.errors import APIError, NotFound
from tornado.log import app_log

from spawner_config.labels import HUB_LABEL, OWNER_LABEL
from spawner_config.refusals import check_owner
from spawner_config.shares import GROUPS_PLACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import docker

    from spawner_config.shares import DataSet, GroupFolder, Shares

NO_QUOTAS = "quota"
"""A part of the engine's message for a volume with a size, if its disk has no project quotas."""


class SharedVolumeError(RuntimeError):
    """Raised when a volume that a server needs cannot be used. The message names the volume and a remedy."""


class SharedVolumes:
    """The volumes of the hub ``name``; ``client`` is a client of the engine that no other object uses."""

    def __init__(self, client: docker.APIClient, shares: Shares, *, name: str) -> None:
        self._client = client
        self._shares = shares
        self._name = name
        self._lock = asyncio.Lock()
        self._has_quotas = True
        """Whether the engine's disk has project quotas, which the first volume with a quota shows."""

    def binds(self, user: str, groups: set[str], data_sets: Sequence[str] | None) -> dict[str, dict[str, str]]:
        """Return the mounts of a server in the engine client's format; ``data_sets`` is the profile's selection."""
        data = {each.volume: {"bind": each.path, "mode": "ro"} for each in self._shares.data_of(data_sets)}
        folders = {
            each.volume(self._name): {"bind": each.path, "mode": "rw"} for each in self._shares.folders_of(user, groups)
        }
        return {**data, **folders}

    async def claim_homes(self, homes: Iterable[str], user: str, *, size: int | None = None) -> None:
        """Create the user's home volumes if they do not exist, and check that they belong to the user.

        A new volume gets a quota of ``size`` bytes if the engine's disk has quotas. A volume from an earlier version
        has no label with its user's name, and is accepted. Raises `ForeignObjectError`.
        """
        async with self._lock:
            for home in homes:
                await asyncio.to_thread(self._claim, home, user, size)

    async def ensure(
        self, user: str, groups: set[str], data_sets: Sequence[str] | None, *, image: str, network: str
    ) -> None:
        """Create the missing group volumes of a server, and check that its data volumes exist.

        ``image`` and ``network`` are those of the server. Raises `SharedVolumeError`.
        """
        # Members of a group must not create its volume twice, and the client does not support concurrent calls.
        async with self._lock:
            for data in self._shares.data_of(data_sets):
                await asyncio.to_thread(self._check, data)
            for folder in self._shares.folders_of(user, groups):
                await asyncio.to_thread(self._ensure_folder, folder, image, network)

    def _claim(self, home: str, user: str, size: int | None) -> None:
        # If the volume exists, the engine changes nothing and returns the existing labels.
        labels = {HUB_LABEL: self._name, OWNER_LABEL: user}
        options = self._driver_options(home)
        with_quota = size is not None and self._has_quotas and not options
        found = self._create_with_quota(home, labels, size) if with_quota else None
        found = found or self._client.create_volume(home, labels=labels, **options)
        check_owner("volume", home, (found["Labels"] or {}).get(OWNER_LABEL), user)

    def _create_with_quota(self, home: str, labels: dict[str, str], size: int | None) -> dict[str, Any] | None:
        """Create a volume with a quota, or return None if the engine's disk has no quotas."""
        try:
            made: dict[str, Any] = self._client.create_volume(home, labels=labels, driver_opts={"size": str(size)})
        except APIError as exc:
            if NO_QUOTAS not in str(exc.explanation).lower():
                raise
            self._has_quotas = False
            app_log.warning(
                "The engine's disk has no project quotas (%s). Homes are measured, and new runs of users whose home is "
                "full are refused. See docs/how-to/quotas.md.",
                exc.explanation,
            )
            return None
        return made

    def _driver_options(self, home: str) -> dict[str, Any]:  # noqa: ARG002 - swarms need it
        """Return the engine client's options for a home volume."""
        return {}

    def _check(self, data: DataSet) -> None:
        if self._is_there(data.volume):
            return
        if data.version:
            raise SharedVolumeError(
                f"There is no volume {data.volume!r} for {data.version}, which FARANDOLE_SHARED_VOLUMES names. The "
                "administrator must copy the data set into such a volume (see 'Share data sets' in the documentation), "
                "or remove it from .env."
            )
        raise SharedVolumeError(
            f"There is no volume {data.volume!r}, which FARANDOLE_SHARED_VOLUMES names. The administrator must "
            f"create it (docker volume create {data.volume}) and fill it, or remove it from .env."
        )

    def _is_there(self, volume: str) -> bool:
        try:
            self._client.inspect_volume(volume)
        except NotFound:
            return False
        return True

    def _ensure_folder(self, folder: GroupFolder, image: str, network: str) -> None:
        """Create the volume of a group by means of a container that is never started.

        When a new volume is first mounted, the engine gives it the owner of the image's directory at the mount point.
        The container therefore mounts the volume at /groups, which the image contains. The image does not contain the
        path of an individual group, at which the volume would get the owner root.
        """
        volume = folder.volume(self._name)
        if self._is_there(volume):
            return
        binds = {volume: {"bind": GROUPS_PLACE, "mode": "rw"}}
        host: dict[str, Any] = self._client.create_host_config(binds=binds, network_mode=network)
        made = self._client.create_container(image, host_config=host, labels={HUB_LABEL: self._name})
        self._client.remove_container(made["Id"])
