"""Check that the networks' packets fit the uplink, and that their addresses are not in use elsewhere."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.doctor.finding import Finding, fault, ok, warning
from spawner_config.containers.addresses import (
    LARGEST_MTU,
    MTU_OPTION,
    MTU_WANTED,
    SMALLEST_MTU,
    SUBNETS_WANTED,
    AddressRange,
    subnets_of,
)
from spawner_config.labels import HUB_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hub.doctor.deployment import Deployment

BRIDGE_OPTION = "com.docker.network.bridge.name"
ENGINE_MTU = 1500
ROUTES = Path("/proc/net/route")
INTERFACES = Path("/sys/class/net")


@dataclass(frozen=True, kw_only=True)
class Route:
    """An entry of the kernel's routing table: packets to ``network`` leave through ``interface``."""

    interface: str
    network: IPv4Network


def read_routes(table: Path = ROUTES) -> list[Route]:
    """Return the IPv4 routes of this machine."""
    rows = (line.split() for line in table.read_text(encoding="ascii").splitlines()[1:])
    return [Route(interface=row[0], network=_network(row[1], row[7])) for row in rows]


def read_uplinks(routes: Iterable[Route], interfaces: Path = INTERFACES) -> dict[str, int]:
    """Return the MTU in bytes of each interface with a default route."""
    names = {route.interface for route in routes if route.network.prefixlen == 0}
    return {name: int((interfaces / name / "mtu").read_text(encoding="ascii")) for name in sorted(names)}


def check_mtu(deployment: Deployment, uplinks: dict[str, int], networks: Sequence[dict[str, Any]]) -> Finding:
    """Compare the MTU of the containers' networks with the MTU of the uplink."""
    setting = deployment.get("FARANDOLE_MTU")
    if not setting.isdigit() or not SMALLEST_MTU <= int(setting) <= LARGEST_MTU:
        return fault("mtu", f"FARANDOLE_MTU is {setting!r}.", f"It must be {MTU_WANTED}, in bytes.")
    if not uplinks:
        return ok("mtu", "this machine has no uplink to compare with")
    name, carried = min(uplinks.items(), key=lambda item: item[1])
    if int(setting) > carried:
        return warning(
            "mtu",
            f"{name} has an MTU of {carried} bytes, and the containers' networks have {setting}: large downloads may "
            "hang.",
            f"Set FARANDOLE_MTU={carried} in .env, then: docker compose down && docker compose up -d\n"
            f"(it sets {MTU_OPTION} of each network; the next server of each user creates the user's network again)",
        )
    older = [each["Name"] for each in networks if _is_ours(each, deployment.name) and _mtu(each) > carried]
    if older:
        return warning(
            "mtu",
            f"{', '.join(sorted(older))} has an older MTU than FARANDOLE_MTU={setting}, and {name} has {carried}.",
            "Users stop their servers, then: docker compose down && docker compose up -d",
        )
    return ok("mtu", f"{name} has an MTU of {carried} bytes, the containers' networks have {setting}")


def check_subnets(deployment: Deployment, routes: Iterable[Route], networks: Sequence[dict[str, Any]]) -> Finding:
    """Check whether other networks or routes use addresses in FARANDOLE_SUBNETS."""
    setting = deployment.get("FARANDOLE_SUBNETS")
    try:
        ours = AddressRange(whole=IPv4Network(setting)).whole
    except ValueError as exc:
        return fault("addresses", f"FARANDOLE_SUBNETS is {setting!r}: {exc}.", f"It must be {SUBNETS_WANTED}.")
    others = [
        *_other_networks(networks, deployment.name),
        *_other_routes(routes, {_bridge(network) for network in networks}),
    ]
    clashes = [(who, theirs) for who, theirs in others if theirs.overlaps(ours)]
    if not clashes:
        return ok("addresses", f"{setting} is not in use elsewhere")
    names = ", ".join(f"{theirs} ({who})" for who, theirs in clashes)
    remedy = "Set FARANDOLE_SUBNETS to a private range that nothing else uses, then: docker compose up -d"
    if any(ours.subnet_of(theirs) for _, theirs in clashes):
        return fault(
            "addresses", f"All of FARANDOLE_SUBNETS {setting} lies in {names}: no user gets a network.", remedy
        )
    return warning("addresses", f"FARANDOLE_SUBNETS {setting} overlaps {names}: fewer users get a network.", remedy)


def check_ipv6(deployment: Deployment, networks: Iterable[dict[str, Any]]) -> Finding:
    """Warn if the hub's networks have IPv6, because the firewall rules cover only IPv4."""
    found = [each["Name"] for each in networks if _is_ours(each, deployment.name) and each.get("EnableIPv6")]
    if not found:
        return ok("ipv6", "the containers' networks have none")
    return warning(
        "ipv6",
        f"{', '.join(sorted(found))} has IPv6, for which there are no rules: users' containers may reach fc00::/7, "
        "fe80::/10 and a cloud's metadata service.",
        "Remove enable_ipv6 from default-network-opts in /etc/docker/daemon.json, restart the engine, and remove these "
        "networks: docker compose down && docker network rm NAME",
    )


def _other_networks(networks: Iterable[dict[str, Any]], name: str) -> Iterator[tuple[str, IPv4Network]]:
    for network in networks:
        if not _is_ours(network, name):
            for subnet in subnets_of(network):
                yield f"the engine's network {network['Name']}", subnet


def _other_routes(routes: Iterable[Route], bridges: set[str]) -> Iterator[tuple[str, IPv4Network]]:
    for route in routes:
        if route.network.prefixlen and route.interface not in bridges:
            yield f"a route of {route.interface}", route.network


def _is_ours(network: dict[str, Any], name: str) -> bool:
    """Return whether this hub owns a network. Users' networks have the hub's label; compose's have fixed names."""
    return (network.get("Labels") or {}).get(HUB_LABEL) == name or network["Name"] in {
        f"{name}-{part}" for part in ("front", "back", "engine")
    }


def _mtu(network: dict[str, Any]) -> int:
    """Return the MTU of a network in bytes, or 0 if the network has no access to the outside."""
    text = (network.get("Options") or {}).get(MTU_OPTION, "")
    return 0 if network.get("Internal") else int(text) if text.isdigit() else ENGINE_MTU


def _bridge(network: dict[str, Any]) -> str:
    return (network.get("Options") or {}).get(BRIDGE_OPTION) or f"br-{str(network['Id'])[:12]}"


def _network(address: str, mask: str) -> IPv4Network:
    """Convert an address and a mask from /proc/net/route, which shows them in the machine's byte order."""
    dotted, netmask = (IPv4Address(int(word, 16).to_bytes(4, sys.byteorder)) for word in (address, mask))
    return IPv4Network(f"{dotted}/{netmask}")
