"""The base of the spawners of containers, which adds the user's network and the shared volumes to a server."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from jupyterhub.utils import maybe_future
from traitlets import default

from spawner_config.containers.images import ImageSpawner
from spawner_config.containers.names import container_name, slug
from spawner_config.containers.shared_volumes import SharedVolumeError, SharedVolumes
from spawner_config.lifecycle.readiness import ReadinessSpawner
from spawner_config.refusals import ForeignObjectError, refused_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spawner_config.containers.networks import UserNetworks


class NetworkedSpawner(ReadinessSpawner, ImageSpawner):
    """A DockerSpawner whose servers are in the network of their user, with the volumes that users share."""

    networks: ClassVar[UserNetworks]
    shared_volumes: ClassVar[SharedVolumes]
    """All spawners of a hub share the networks and the volumes. A deployment's `configure` sets both on a subclass."""
    data_sets: Sequence[str] | None = None
    """The server's volumes of FARANDOLE_SHARED_VOLUMES, None for all; set by its profile."""

    @property
    def user_slug(self) -> str:
        """The user's name in a form that engines accept."""
        return slug(self.user.name)

    @default("object_name")
    def _object_name_default(self) -> str:
        return container_name(self.prefix, self.user.name, self.name)

    @abstractmethod
    async def remove_named(self, name: str) -> None:
        """Remove the container or service of that name if it exists, running or not."""

    async def start(self) -> tuple[str, int]:
        """Start the server in the network of its user; returns its address.

        Raises `SpawnException` if the network belongs to another user.
        """
        try:
            self.network_name = await self.networks.hold(self.user.name, self.name)
        except ForeignObjectError as exc:
            raise refused_start(str(exc), reason="owner") from exc
        try:
            address: tuple[str, int] = await super().start()
        except BaseException:
            # Clean up after a cancellation too, because JupyterHub stops only servers that have begun to run. Remove
            # the container by name, because its id is unknown while the engine is still creating it. Calls of
            # spawners run one after the other, so the removal runs after the creation.
            try:
                await self.remove_named(self.object_name)
            finally:
                # JupyterHub may have refused a stop in the meantime, see `poll_and_notify`.
                self.start_polling()
            raise
        return address

    @property
    def user_groups(self) -> set[str]:
        """The names of the user's groups at the hub."""
        return {group.name for group in self.user.groups}

    @property
    def homes(self) -> list[str]:
        """The volumes that belong to the user alone."""
        return list(super().volume_binds)

    @property
    def volume_binds(self) -> dict[str, dict[str, str]]:
        """The server's volumes: the user's home and the shared volumes."""
        home: dict[str, dict[str, str]] = super().volume_binds
        return {**home, **self.shared_volumes.binds(self.user.name, self.user_groups, self.data_sets)}

    async def ensure_volumes(self) -> None:
        """Create the user's home and the shared volumes if they are missing; raises `SpawnException`."""
        try:
            await self.shared_volumes.claim_homes(self.homes, self.user.name)
            await self.shared_volumes.ensure(
                self.user.name, self.user_groups, self.data_sets, image=self.image, network=self.network_name
            )
        except (SharedVolumeError, ForeignObjectError) as exc:
            raise refused_start(str(exc), reason="volume") from exc

    async def run_post_stop_hook(self) -> None:
        """Run the hook of every deployment, then release the network, no matter how the server ended."""
        try:
            await maybe_future(super().run_post_stop_hook())
        finally:
            await self.networks.release(self.user.name, self.name)
