"""What servers in containers are, on one machine or on several: in their user's network, with what users share."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from jupyterhub.utils import maybe_future
from traitlets import default

from spawner_config.containers.images import ImageSpawner
from spawner_config.containers.names import container_name, slug
from spawner_config.containers.shared_volumes import SharedVolumeError, SharedVolumes
from spawner_config.lifecycle.readiness import ReadinessSpawner
from spawner_config.refusals import refused_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawner_config.containers.networks import UserNetworks


class NetworkedSpawner(ReadinessSpawner, ImageSpawner):
    """A DockerSpawner whose servers are in their user's own network, with the volumes that are shared with the user."""

    networks: ClassVar[UserNetworks]
    shared_volumes: ClassVar[SharedVolumes]
    """Both are shared by all spawners of a hub; set by the subclass that a deployment's `configure` makes."""
    data_sets: Sequence[str] | None = None
    """The volumes of FARANDOLE_SHARED_VOLUMES that the server has, None for all; set by its profile."""

    @property
    def user_slug(self) -> str:
        """The user's name as engines accept it."""
        return slug(self.user.name)

    @default("object_name")
    def _object_name_default(self) -> str:
        return container_name(self.prefix, self.user.name, self.name)

    @abstractmethod
    async def remove_named(self, name: str) -> None:
        """Remove the container or service of that name, running or not, if there is one."""

    async def start(self) -> tuple[str, int]:
        """Start the server in its user's network; returns its address."""
        self.network_name = await self.networks.hold(self.user_slug, self.name)
        try:
            address: tuple[str, int] = await super().start()
        except BaseException:
            # Cancelled too: the hub stops only what has begun to run. By name: the engine may just be making the
            # container, and nobody knows its id yet. The spawners' calls wait for each other, so this one comes later.
            try:
                await self.remove_named(self.object_name)
            finally:
                # The hub may have been told to stop this meanwhile, and have refused: see `poll_and_notify`.
                self.start_polling()
            raise
        return address

    @property
    def user_groups(self) -> set[str]:
        """The names of the user's groups at the hub."""
        return {group.name for group in self.user.groups}

    @property
    def volume_binds(self) -> dict[str, dict[str, str]]:
        """The server's volumes: the user's home and what users share."""
        home: dict[str, dict[str, str]] = super().volume_binds
        return {**home, **self.shared_volumes.binds(self.user.name, self.user_groups, self.data_sets)}

    async def ensure_volumes(self) -> None:
        """Return once the volumes that are shared with the user are there; raises `SpawnException`."""
        try:
            await self.shared_volumes.ensure(
                self.user.name, self.user_groups, self.data_sets, image=self.image, network=self.network_name
            )
        except SharedVolumeError as exc:
            raise refused_start(str(exc), reason="volume") from exc

    async def run_post_stop_hook(self) -> None:
        """Do what every deployment does, then give the network back, however the server ended."""
        try:
            await maybe_future(super().run_post_stop_hook())
        finally:
            await self.networks.release(self.user_slug, self.name)
