"""A network for each user over all machines of a swarm, in which hub and proxy have addresses that never change."""

from __future__ import annotations

import time
from ipaddress import IPv4Network
from typing import Any

from docker.errors import APIError
from docker.types import IPAMConfig, IPAMPool
from tornado.log import app_log

from spawner_config.containers.addresses import MTU_OPTION
from spawner_config.containers.networks import UserNetworks
from spawner_config.labels import HUB_LABEL

PREFIX = 25
"""A network's share of the range: 128 addresses, of which the lower half is the servers' and the machines'."""
VXLAN_BYTES = 50
"""What each packet gets in front on its way between two machines."""
NETWORK_LABEL = "farandole.network"
"""On a server's service: the network that it is in."""
REMOVAL_SECONDS = 15.0
REMOVAL_PAUSE = 0.1


class UserOverlays(UserNetworks):
    """The networks of a hub's users on a swarm, asked for at one of its managers.

    The hub's containers, which are no services, join them with fixed addresses: one that was killed and starts again
    has the address that servers on other machines have just been told, and no other container can have taken it.
    """

    def _specification(self, subnet: IPv4Network) -> dict[str, Any]:
        servers = next(subnet.subnets(prefixlen_diff=1))
        return {
            "driver": "overlay",
            "attachable": True,
            "options": {MTU_OPTION: str(self._mtu - VXLAN_BYTES)},
            "ipam": IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet), iprange=str(servers))]),
        }

    def _endpoint(self, container: str, network: dict[str, Any]) -> dict[str, Any]:
        subnet = IPv4Network(network["IPAM"]["Config"][0]["Subnet"])
        # From the end, below the broadcast address.
        address = subnet[-2 - list(self._services).index(container)]
        return {**super()._endpoint(container, network), "ipv4_address": str(address)}

    def _has_servers(self, network: dict[str, Any]) -> bool:
        # The network itself tells only of containers on this machine.
        labels = [f"{HUB_LABEL}={self._name}", f"{NETWORK_LABEL}={network['Name']}"]
        return bool(self._client.services(filters={"label": labels}))

    def _remove(self, network: dict[str, Any]) -> None:
        """Remove it and wait until its name is free: who asked for it before would be given the one that goes."""
        end = time.monotonic() + REMOVAL_SECONDS
        refusal = "it is still there"
        while time.monotonic() < end:
            try:
                super()._remove(network)
            except APIError as exc:
                # In use: by a task that goes, or the hub's own part that is just leaving. Or gone already.
                refusal = str(exc.explanation or exc)
            if self._inspect(network["Name"]) is None:
                return
            time.sleep(REMOVAL_PAUSE)
        # The user's next server takes it up again.
        app_log.warning("The network %s could not be removed: %s", network["Name"], refusal)
