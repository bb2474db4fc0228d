"""Rebuilds the bodies of requests about networks and volumes from their admitted options."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any

from hub.engine_filter.body import flag, nested, objects, one_of, rebuild, text, texts_by_name
from hub.engine_filter.containers import ENDPOINT, labels
from hub.engine_filter.mounts import check_driver_options, volume_name
from hub.engine_filter.refused import RefusedError
from spawner_config.containers.addresses import MTU_OPTION

if TYPE_CHECKING:
    from hub.engine_filter.body import Check
    from hub.engine_filter.rules import Rules


def _within_subnets(rules: Rules, kind: type[IPv4Address | IPv4Network]) -> Check:
    """Return a check for an address, or a range of addresses, in FARANDOLE_SUBNETS."""

    def check(where: str, value: Any) -> str:
        try:
            found = kind(text(where, value))
        except ValueError as exc:
            raise RefusedError(f"{where} is not valid: {exc}.") from exc
        if not IPv4Network(found).subnet_of(rules.addresses):
            raise RefusedError(f"{where} may not be {value!r}: it must lie in FARANDOLE_SUBNETS, {rules.addresses}.")
        return str(found)

    return check


# Other options would affect the host, because they set the name of its interface or the addresses of published ports.
OPTIONS: dict[str, Check] = {
    MTU_OPTION: text,
    "com.docker.network.bridge.enable_icc": text,
    "com.docker.network.bridge.inhibit_ipv4": text,
}


def rebuild_network(rules: Rules, body: dict[str, Any]) -> dict[str, Any]:
    """Return the admitted body of a request to create a network, with the hub's label.

    The network is a bridge. On a swarm it is an overlay network, which containers that are not services may join too.
    """
    driver = "overlay" if rules.swarm else "bridge"
    subnet = _within_subnets(rules, IPv4Network)
    ranges: dict[str, Check] = {"Subnet": subnet, **({"IPRange": subnet} if rules.swarm else {})}
    checks: dict[str, Check] = {
        "Name": text,
        "CheckDuplicate": flag,
        "Driver": one_of("", driver),
        "Internal": flag,
        "Options": nested(OPTIONS),
        "Labels": labels,
        "IPAM": nested({"Driver": one_of("", "default"), "Config": objects(ranges)}),
        **({"Attachable": flag} if rules.swarm else {}),
    }
    built = rebuild("", body, checks)
    check_own_name(rules, "network", built.get("Name", ""))
    built["Labels"] = {**built.get("Labels", {}), **rules.label}
    return {**built, "Driver": driver, "CheckDuplicate": True, **({"Attachable": True} if rules.swarm else {})}


def rebuild_connect(rules: Rules, body: dict[str, Any]) -> dict[str, Any]:
    """Return the admitted body of a request to connect a container to a network.

    On a swarm, the body may set the container's address.
    """
    address = nested({"IPv4Address": _within_subnets(rules, IPv4Address)})
    endpoint = {**ENDPOINT, **({"IPAMConfig": address} if rules.swarm else {})}
    return rebuild("", body, {"Container": text, "EndpointConfig": nested(endpoint)})


def rebuild_disconnect(body: dict[str, Any]) -> dict[str, Any]:
    """Return the admitted body of a request to disconnect a container from a network."""
    return rebuild("", body, {"Container": text, "Force": flag})


def rebuild_volume(rules: Rules, body: dict[str, Any]) -> dict[str, Any]:
    """Return the admitted body of a request to create a local volume, with the hub's label.

    The volume may not be a folder of the host, except a folder of FARANDOLE_SWARM_HOMES on a swarm.
    """
    checks: dict[str, Check] = {
        "Name": volume_name,
        "Driver": one_of("", "local"),
        "DriverOpts": texts_by_name,
        "Labels": labels,
    }
    built = rebuild("", body, checks)
    check_own_name(rules, "volume", built.get("Name", ""))
    if options := built.get("DriverOpts"):
        check_driver_options(rules, "DriverOpts", built["Name"], options)
    built["Labels"] = {**built.get("Labels", {}), **rules.label}
    return {**built, "Driver": "local"}


def check_own_name(rules: Rules, kind: str, name: str) -> None:
    """Raise RefusedError if the name does not begin with the hub's name and a hyphen."""
    if not name.startswith(rules.prefix):
        raise RefusedError(
            f"The {kind} {name!r} does not belong to this hub: its name must begin with {rules.prefix!r}."
        )
