"""A network for each user over all machines of a swarm, in which hub and proxy have fixed addresses."""

from __future__ import annotations

import time
from ipaddress import IPv4Network
from typing import Any

from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool
from tornado.log import app_log

from spawner_config.containers.addresses import MTU_OPTION
from spawner_config.containers.networks import NetworkError, UserNetworks
from spawner_config.labels import HUB_LABEL

PREFIX = 25
"""The size of a network: 128 addresses, with the lower half for servers and machines."""
VXLAN_BYTES = 50
"""The size of the header of each packet between two machines."""
NETWORK_LABEL = "farandole.network"
"""The network of a server, as a label of its service."""
ADDRESS_SECONDS = 30.0
REMOVAL_SECONDS = 15.0
POLL_SECONDS = 0.1


class UserOverlays(UserNetworks):
    """The networks of a hub's users on a swarm, managed through one of its managers.

    The hub's containers, which are no services, join them with fixed addresses. After a crash they have the same
    addresses again, which servers on other machines may have looked up, and no other container can have taken them.
    """

    def _specification(self, subnet: IPv4Network) -> dict[str, Any]:
        servers = next(subnet.subnets(prefixlen_diff=1))
        return {
            "driver": "overlay",
            "attachable": True,
            "options": {MTU_OPTION: str(self._mtu - VXLAN_BYTES)},
            "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet), iprange=str(servers))]),
        }

    def _allocated(self, network: dict[str, Any]) -> dict[str, Any]:
        # A swarm allocates the addresses of a network after it has answered the request for it.
        end = time.monotonic() + ADDRESS_SECONDS
        while not network["IPAM"]["Config"] and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
            network = self._client.inspect_network(network["Id"])
        return network

    def _endpoint(self, container: str, network: dict[str, Any]) -> dict[str, Any]:
        pools = network["IPAM"]["Config"]
        if not pools:
            raise NetworkError(
                f"The swarm has given {network['Name']} no addresses. Remove it with `docker network rm`, and set "
                "FARANDOLE_SUBNETS to a range of addresses that nothing else uses."
            )
        # Counted from the end, below the broadcast address.
        address = IPv4Network(pools[0]["Subnet"])[-2 - list(self._services).index(container)]
        return {**super()._endpoint(container, network), "ipv4_address": str(address)}

    def _has_servers(self, network: dict[str, Any]) -> bool:
        # The network itself lists only containers on this machine.
        labels = [f"{HUB_LABEL}={self._name}", f"{NETWORK_LABEL}={network['Name']}"]
        return bool(self._client.services(filters={"label": labels}))

    def _remove(self, network: dict[str, Any]) -> None:
        """Remove a network and wait until its name is free. A lookup would return the old network until then."""
        end = time.monotonic() + REMOVAL_SECONDS
        refusal = "it is still there"
        while time.monotonic() < end:
            try:
                super()._remove(network)
            except APIError as exc:
                # A task or a part of the hub is still leaving the network, or the network is already removed.
                refusal = str(exc.explanation or exc)
            if self._inspect(network["Name"]) is None:
                return
            time.sleep(POLL_SECONDS)
        # This does no harm: the user's next server uses the network again.
        app_log.warning("The network %s could not be removed: %s", network["Name"], refusal)
