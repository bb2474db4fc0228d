"""The IP addresses and the MTU of the users' networks.

This module imports only the standard library, because the engine filter and `make doctor` use it as well as the hub.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MTU_OPTION = "com.docker.network.driver.mtu"
SUBNETS = "10.213.0.0/16"
SUBNETS_WANTED = f"a range such as '{SUBNETS}'"
MTU = 1500
SMALLEST_MTU, LARGEST_MTU = 576, 65535
MTU_WANTED = f"a number from {SMALLEST_MTU} to {LARGEST_MTU}"
USER_PREFIX = 26


@dataclass(frozen=True, kw_only=True)
class AddressRange:
    """The address range of the users' networks, each of which gets a subnet with the prefix length ``prefix``.

    The range is needed because Docker's default address pools are exhausted after about thirty networks. The gateway,
    the hub, the proxy and the NATS server use four addresses of each subnet.
    """

    whole: IPv4Network
    prefix: int = USER_PREFIX

    def __post_init__(self) -> None:
        """Raise ValueError if the range is too small for one network."""
        if self.whole.prefixlen > self.prefix:
            raise ValueError(f"{self.whole} is too small: it must be /{self.prefix} or larger")

    def free(self, taken: Iterable[IPv4Network]) -> Iterator[IPv4Network]:
        """Yield the subnets of the range that do not overlap any network in ``taken``."""
        others = list(taken)
        for piece in self.whole.subnets(new_prefix=self.prefix):
            if not any(piece.overlaps(other) for other in others):
                yield piece


def subnets_of(network: dict[str, Any]) -> list[IPv4Network]:
    """Return the IPv4 subnets of a network, which is given as the engine describes it."""
    pools = (network.get("IPAM") or {}).get("Config") or []
    return [IPv4Network(pool["Subnet"]) for pool in pools if ":" not in pool.get("Subnet", ":")]
