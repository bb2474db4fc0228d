"""The proxy as the hub of the deployment with containers sees it: a container that may be made anew at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from spawner_config.lifecycle.idle import QuietProxy

if TYPE_CHECKING:
    from spawner_config.containers.networks import UserNetworks


class NetworkedProxy(QuietProxy):
    """A proxy that is given the users' networks back together with its routes, and whose word on activity is no use."""

    networks: ClassVar[UserNetworks]

    async def check_routes(
        self, user_dict: dict[Any, Any], service_dict: dict[str, Any], routes: dict[str, Any] | None = None
    ) -> None:
        """Give back what a proxy that was made anew lacks; the hub does this when it starts and again and again.

        Such a proxy lacks the hub's route too. The networks come first: once it has the route it looks like any other.
        """
        known = routes or await self.get_all_routes()
        await self.networks.keep_joined(lost=self.app.hub.routespec not in known)
        await super().check_routes(user_dict, service_dict, known)
