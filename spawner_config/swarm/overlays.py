"""A network for each user across all machines of a swarm, in which the hub and the proxy have fixed addresses."""

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
"""The prefix length of a network with 128 addresses. Servers and machines get addresses from the lower half only."""
VXLAN_BYTES = 50
"""The number of bytes that VXLAN adds to each packet between two machines."""
NETWORK_LABEL = "farandole.network"
"""The label of a service that contains the name of the server's network."""
ADDRESS_SECONDS = 30.0
REMOVAL_SECONDS = 15.0
POLL_SECONDS = 0.1


class UserOverlays(UserNetworks):
    """The networks of a hub's users on a swarm, managed by an engine that is a manager of the swarm.

    The hub's and the proxy's containers are not services, and join the networks with fixed addresses. Servers on other
    machines may have looked up these addresses. After a crash, the containers therefore get the same addresses again,
    which no other container can have taken.
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
        # A swarm allocates a network's addresses only after it has answered the request to create the network.
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
        # Choose addresses from the end of the subnet, below the broadcast address, where servers get no addresses.
        address = IPv4Network(pools[0]["Subnet"])[-2 - list(self._services).index(container)]
        return {**super()._endpoint(container, network), "ipv4_address": str(address)}

    def _has_servers(self, network: dict[str, Any]) -> bool:
        # The network's description lists only the containers on this machine, so look for services instead.
        labels = [f"{HUB_LABEL}={self._name}", f"{NETWORK_LABEL}={network['Name']}"]
        return bool(self._client.services(filters={"label": labels}))

    def _remove(self, network: dict[str, Any]) -> None:
        """Remove a network, and wait until a lookup by its name no longer returns it.

        If the network still exists after `REMOVAL_SECONDS`, log a warning.
        """
        end = time.monotonic() + REMOVAL_SECONDS
        refusal = "it is still there"
        while time.monotonic() < end:
            try:
                super()._remove(network)
            except APIError as exc:
                # A task, the hub or the proxy may still be leaving the network, or the network may already be removed.
                refusal = str(exc.explanation or exc)
            if self._inspect(network["Name"]) is None:
                return
            time.sleep(POLL_SECONDS)
        # Do not raise an error, because the user's next server can use the network that remains.
        app_log.warning("The network %s could not be removed: %s", network["Name"], refusal)
