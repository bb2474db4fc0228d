"""The homes and group folders of a swarm, which are in a folder that all machines share if one is configured."""

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
    """The volumes of a hub on a swarm; if ``folder`` is None, each machine has separate volumes."""

    def __init__(self, client: docker.APIClient, shares: Shares, folder: SharedHome | None, *, name: str) -> None:
        super().__init__(client, shares, name=name)
        self._folder = folder
        self._made: set[str] = set()

    @property
    def everywhere(self) -> bool:
        """Whether each home is the same on all machines."""
        return self._folder is not None

    def mounts(self, binds: dict[str, dict[str, str]], homes: Collection[str], user: str) -> list[Mount]:
        """Return the mounts of a server's service; ``binds`` has the format of the engine client.

        On each machine, new volumes that are listed in ``homes`` get a label with the user's name.
        """
        return [
            Mount(
                target=bind["bind"],
                source=volume,
                read_only=bind["mode"] == "ro",
                # Do not copy the image's folder into a shared home. Root may have no permission to do this on a network
                # share.
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
        """Create the folders of a server's volumes if they do not exist; raises `SharedVolumeError`."""
        async with self._lock:
            for volume in filter(self._is_shared, binds):
                await asyncio.to_thread(self._make, volume, image)

    def _is_shared(self, volume: str) -> bool:
        return self.everywhere and volume.startswith(f"{self._name}-")

    def _driver_options(self, home: str) -> dict[str, Any]:
        """Return the options that make the home's volume on the hub's machine a folder of the share.

        The volume's label records the user to whom the home belongs. If there is no share, the home is an ordinary
        volume on the hub's machine, where the notebook servers run.
        """
        if not self._is_shared(home):
            return {}
        driver = self._driver(home)
        return {"driver": driver["Name"], "driver_opts": driver["Options"]}

    def _driver(self, volume: str) -> DriverConfig:
        assert self._folder is not None
        return DriverConfig("local", self._folder.options(volume, self._name))

    def _ensure_folder(self, folder: GroupFolder, image: str, network: str) -> None:
        """Do nothing, because `make` creates the folders of groups together with the homes."""

    def _make(self, volume: str, image: str) -> None:
        if volume in self._made:
            return
        try:
            refusal = self._run_mkdir(volume, image)
        except ENGINE_ERRORS as exc:
            # If the machine with the shared folder does not respond, the engine does not answer either.
            refusal = reason(exc)
        if refusal:
            raise SharedVolumeError(
                f"The folder {volume} could not be created in FARANDOLE_SWARM_HOMES: {refusal}. The administrator "
                "must make sure that the hub's machine can access the folder in FARANDOLE_SWARM_HOMES, and that user "
                "id 1000 owns this folder (chown 1000:1000)."
            )
        self._made.add(volume)

    def _run_mkdir(self, volume: str, image: str) -> str:
        """Create a volume's folder, and return the error message, or an empty string after success.

        A container mounts the whole share and creates the folder with the user id of the servers.
        """
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
            # The user needs the first error, so an error during the removal must not replace it.
            with suppress(*ENGINE_ERRORS):
                self._client.remove_container(made["Id"], force=True)
        return said if failed else ""
