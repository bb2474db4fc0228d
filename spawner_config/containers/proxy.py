"""The proxy of the deployment with containers, whose container may be recreated at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from spawner_config.lifecycle.idle import QuietProxy

if TYPE_CHECKING:
    from spawner_config.containers.networks import UserNetworks


class NetworkedProxy(QuietProxy):
    """A proxy that gets its networks back together with its routes. The hub ignores its reports of activity."""

    networks: ClassVar[UserNetworks]

    async def check_routes(
        self, user_dict: dict[Any, Any], service_dict: dict[str, Any], routes: dict[str, Any] | None = None
    ) -> None:
        """Restore the networks and routes of a recreated proxy; the hub calls this at its start and regularly.

        A recreated proxy also lacks the hub's route. The networks come first, because the missing route is the only
        sign that the proxy was recreated.
        """
        known = routes or await self.get_all_routes()
        await self.networks.keep_joined(lost=self.app.hub.routespec not in known)
        await super().check_routes(user_dict, service_dict, known)
