"""The proxy as the hub of the deployment with containers sees it: a container that may be made anew at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from jupyterhub.proxy import ConfigurableHTTPProxy

if TYPE_CHECKING:
    from spawner_config.networks import UserNetworks


class NetworkedProxy(ConfigurableHTTPProxy):  # type: ignore[misc]
    """A proxy that is given the users' networks back together with its routes."""

    networks: ClassVar[UserNetworks]

    async def check_routes(self, *arguments: Any, **options: Any) -> None:
        """Give back what a proxy that was made anew lacks; the hub does this when it starts and again and again."""
        await self.networks.keep_joined()
        await super().check_routes(*arguments, **options)
