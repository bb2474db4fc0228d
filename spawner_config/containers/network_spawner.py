"""The base class of the container spawners, which connects a server to its user's network and mounts shared volumes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from jupyterhub.utils import maybe_future
from traitlets import default

from spawner_config.containers.images import ImageSpawner
from spawner_config.containers.names import container_name, slug
from spawner_config.containers.shared_volumes import SharedVolumeError, SharedVolumes
from spawner_config.lifecycle.readiness import ReadinessSpawner
from spawner_config.quotas.sizes import HomeSizes
from spawner_config.refusals import ForeignObjectError, refused_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawner_config.containers.networks import UserNetworks


class NetworkedSpawner(ReadinessSpawner, ImageSpawner):
    """A DockerSpawner that puts each server into its user's network and mounts the volumes that users share."""

    networks: ClassVar[UserNetworks]
    shared_volumes: ClassVar[SharedVolumes]
    """The networks and the shared volumes of the hub. They are class attributes, which `configure` sets on a subclass,
    because all spawners of a hub must share them."""
    home_sizes: ClassVar[HomeSizes] = HomeSizes()
    """The quotas of new homes, on a disk of the engine that has quotas."""
    data_sets: Sequence[str] | None = None
    """The volumes from FARANDOLE_SHARED_VOLUMES that the server's profile selects, or None for all of them."""

    @property
    def user_slug(self) -> str:
        """The user's name in a form that engines accept."""
        return slug(self.user.name)

    @default("object_name")
    def _object_name_default(self) -> str:
        return container_name(self.prefix, self.user.name, self.name)

    @abstractmethod
    async def remove_named(self, name: str) -> None:
        """Remove the container or service with this name if it exists, whether or not it is running."""

    async def start(self) -> tuple[str, int]:
        """Start the server in its user's network, and return its address.

        Raises `SpawnException` if the server cannot start, for example because the network belongs to another user.
        """
        try:
            self.network_name = await self.networks.hold(self.user.name, self.name)
        except ForeignObjectError as exc:
            raise refused_start(str(exc), reason="owner") from exc
        try:
            address: tuple[str, int] = await super().start()
        except BaseException:
            # Clean up after a cancellation too, because JupyterHub stops only servers that are already running. Remove
            # the container by name, because its id is unknown while the engine is creating it. All calls of the
            # spawners run one after the other, so the removal runs after the creation.
            try:
                await self.remove_named(self.object_name)
            finally:
                # JupyterHub may have refused to stop the server in the meantime, see `poll_and_notify`.
                self.start_polling()
            raise
        return address

    @property
    def user_groups(self) -> set[str]:
        """The names of the user's JupyterHub groups."""
        return {group.name for group in self.user.groups}

    @property
    def homes(self) -> list[str]:
        """The names of the user's own volumes.

        An image of a model gets no volumes, because somebody else may have made it.
        """
        return [] if self.model_image else list(super().volume_binds)

    @property
    def volume_binds(self) -> dict[str, dict[str, str]]:
        """The mounts of the server: the user's home and the shared volumes."""
        if self.model_image:
            return {}
        home: dict[str, dict[str, str]] = super().volume_binds
        return {**home, **self.shared_volumes.binds(self.user.name, self.user_groups, self.data_sets)}

    async def ensure_volumes(self) -> None:
        """Create the user's home and the shared volumes if they do not exist; raises `SpawnException`."""
        if self.model_image:
            return
        try:
            size = self.home_sizes.of_spawner(self)
            await self.shared_volumes.claim_homes(self.homes, self.user.name, size=size)
            await self.shared_volumes.ensure(
                self.user.name, self.user_groups, self.data_sets, image=self.image, network=self.network_name
            )
        except (SharedVolumeError, ForeignObjectError) as exc:
            raise refused_start(str(exc), reason="volume") from exc

    async def run_post_stop_hook(self) -> None:
        """Run the deployment's post-stop hook, then release the network even if the hook failed."""
        try:
            await maybe_future(super().run_post_stop_hook())
        finally:
            await self.networks.release(self.user.name, self.name)
