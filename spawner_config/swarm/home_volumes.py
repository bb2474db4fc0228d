"""The volumes of a swarm: homes and group folders, in a folder that all machines share if there is one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from docker.types import DriverConfig, Mount

from spawner_config.containers.networks import ENGINE_ERRORS, reason
from spawner_config.containers.shared_volumes import SharedVolumeError, SharedVolumes
from spawner_config.labels import HUB_LABEL, OWNER_LABEL
from spawner_config.swarm.shared_home import MKDIR, PLACE, whole

if TYPE_CHECKING:
    from collections.abc import Collection

    import docker

    from spawner_config.shares import GroupFolder, Shares
    from spawner_config.swarm.shared_home import SharedHome

MAKE_SECONDS = 60


class SwarmVolumes(SharedVolumes):
    """The shared volumes and the homes of a hub on a swarm; if ``folder`` is None, each machine has separate homes."""

    def __init__(self, client: docker.APIClient, shares: Shares, folder: SharedHome | None, *, name: str) -> None:
        super().__init__(client, shares, name=name)
        self._folder = folder
        self._made: set[str] = set()

    @property
    def everywhere(self) -> bool:
        """Whether a home is the same on all machines."""
        return self._folder is not None

    def mounts(self, binds: dict[str, dict[str, str]], homes: Collection[str], user: str) -> list[Mount]:
        """Return the volumes of a server as mounts of a service; ``binds`` have the form of the engine's client.

        New volumes of ``homes`` get the user's name on each machine.
        """
        return [
            Mount(
                target=bind["bind"],
                source=volume,
                read_only=bind["mode"] == "ro",
                # A home starts empty and belongs to its user. Root may be unable to copy the image's folder to a share.
                no_copy=self._is_shared(volume),
                labels=self._labels(volume, user if volume in homes else None),
                driver_config=self._driver(volume) if self._is_shared(volume) else None,
            )
            for volume, bind in binds.items()
        ]

    def _labels(self, volume: str, owner: str | None) -> dict[str, str] | None:
        if not volume.startswith(f"{self._name}-"):
            return None
        return {HUB_LABEL: self._name, **({OWNER_LABEL: owner} if owner else {})}

    async def make(self, binds: dict[str, dict[str, str]], *, image: str) -> None:
        """Create the missing folders of a server's volumes; raises `SharedVolumeError`."""
        async with self._lock:
            for volume in filter(self._is_shared, binds):
                await asyncio.to_thread(self._make, volume, image)

    def _is_shared(self, volume: str) -> bool:
        return self.everywhere and volume.startswith(f"{self._name}-")

    def _driver_options(self, home: str) -> dict[str, Any]:
        """Return the options with which the home is a folder of the share on the hub's machine too.

        There its volume is the record of the home's user. Without a share, this is where notebooks run.
        """
        if not self._is_shared(home):
            return {}
        driver = self._driver(home)
        return {"driver": driver["Name"], "driver_opts": driver["Options"]}

    def _driver(self, volume: str) -> DriverConfig:
        assert self._folder is not None
        return DriverConfig("local", self._folder.options(volume, self._name))

    def _ensure_folder(self, folder: GroupFolder, image: str, network: str) -> None:
        """Do nothing: on a swarm, `make` creates the folders of groups as it does homes."""

    def _make(self, volume: str, image: str) -> None:
        if volume in self._made:
            return
        try:
            refusal = self._run_mkdir(volume, image)
        except ENGINE_ERRORS as exc:
            # The engine does not answer either if the machine with the shared folder does not.
            refusal = reason(exc)
        if refusal:
            raise SharedVolumeError(
                f"The folder {volume} could not be created in FARANDOLE_SWARM_HOMES: {refusal}. The administrator "
                "must make sure that the hub's machine has that folder and that user id 1000 owns it (chown 1000:1000)."
            )
        self._made.add(volume)

    def _run_mkdir(self, volume: str, image: str) -> str:
        """Create a volume's folder as the servers' user, in a container with the whole share; returns the error."""
        source, labels = whole(self._name), {HUB_LABEL: self._name}
        mount = Mount(PLACE, source, no_copy=True, labels=labels, driver_config=self._driver(source))
        host: dict[str, Any] = self._client.create_host_config(mounts=[mount], network_mode="none")
        command = [*MKDIR, f"{PLACE}/{volume}"]
        made = self._client.create_container(image, entrypoint=command, host_config=host, labels=labels)
        try:
            self._client.start(made["Id"])
            failed = self._client.wait(made["Id"], timeout=MAKE_SECONDS)["StatusCode"]
            said = self._client.logs(made["Id"]).decode(errors="replace").strip()
        finally:
            # An error here must not hide the first one, which the user needs.
            with suppress(*ENGINE_ERRORS):
                self._client.remove_container(made["Id"], force=True)
        return said if failed else ""
