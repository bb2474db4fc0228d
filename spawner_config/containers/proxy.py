"""The proxy of a hub in containers, which restores its networks and routes after the proxy's container is recreated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from spawner_config.lifecycle.idle import QuietProxy

if TYPE_CHECKING:
    from spawner_config.containers.networks import UserNetworks
    from spawner_config.streams.restarts import RestartWatch


class NetworkedProxy(QuietProxy):
    """A proxy that is reconnected to the users' networks when it has lost its routes, with the NATS server."""

    networks: ClassVar[UserNetworks]
    watch: ClassVar[RestartWatch | None] = None
    """Tells whether the NATS server has been started again, and may be a new container. None if the hub has none."""

    async def check_routes(
        self, user_dict: dict[Any, Any], service_dict: dict[str, Any], routes: dict[str, Any] | None = None
    ) -> None:
        """Restore the networks and routes of a recreated proxy; the hub calls this at its start and periodically.

        A missing route to the hub is the only sign that the proxy was recreated. The networks must therefore be
        restored first, because restoring the routes removes this sign. A NATS server that was recreated has started.
        """
        known = routes or await self.get_all_routes()
        lost = self.app.hub.routespec not in known
        if self.watch and await self.watch.saw_start():
            lost = True
        await self.networks.keep_joined(lost=lost)
        await super().check_routes(user_dict, service_dict, known)
