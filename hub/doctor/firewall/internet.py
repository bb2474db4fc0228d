"""Check whether users' containers can reach private networks, this machine's ports or a cloud's metadata service."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING

from hub.doctor.finding import Finding, fault, ok, warning
from hub.doctor.firewall.iptables import Origin, closes_ports, is_closed, list_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hub.doctor.deployment import Deployment

CHECK = "internet"
SWARM_WAY = "docker_gwbridge"
"""The bridge on each machine through which a swarm's containers reach addresses outside the swarm."""
PRIVATE = tuple(
    IPv4Network(text)
    for text in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
    )
)
"""Address ranges that are not on the internet. 168.63.129.16 looks public, but belongs to a service of Azure."""
METADATA = tuple(map(IPv4Address, ("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192")))
"""The metadata services, which give out credentials: of most clouds, Alibaba Cloud, Azure and Oracle Cloud."""
SWARM_PORTS = frozenset({"111", "2049", "2377", "4789", "7946"})
"""The ports of NFS and of the swarm, including VXLAN, which the machines of a swarm leave open to each other."""


def check_internet(deployment: Deployment) -> Iterator[Finding]:
    """Check whether firewall rules block the addresses that FARANDOLE_INTERNET=yes leaves open."""
    if deployment.get("FARANDOLE_INTERNET") != "yes":
        yield ok(CHECK, "users' containers reach nothing outside their networks")
        return
    if deployment.get("FARANDOLE_DEPLOYMENT") == "swarm":
        yield from _promised(deployment)
    yield judge_rules(deployment, list_rules("DOCKER-USER"), list_rules("INPUT"))


def _promised(deployment: Deployment) -> Iterator[Finding]:
    """Yield a fault if the hub will not start because FARANDOLE_FIREWALL does not confirm the rules on all machines."""
    if deployment.get("FARANDOLE_SWARM_HOMES") and deployment.get("FARANDOLE_FIREWALL") != "set":
        yield fault(
            CHECK,
            "FARANDOLE_SWARM_HOMES is set and users' containers reach the internet. Without rules on every machine "
            "they could mount the homes of all users, so the hub does not start.",
            "Run this as root on every machine, add the rules that it prints, then set FARANDOLE_FIREWALL=set in .env. "
            "Or set FARANDOLE_INTERNET=no.",
        )


def judge_rules(deployment: Deployment, forwarded: str | None, incoming: str | None) -> Finding:
    """Check the rules for forwarded and incoming packets, as `iptables -S` prints them.

    An argument is None if this user may not list the rules.
    """
    swarm = deployment.get("FARANDOLE_DEPLOYMENT") == "swarm"
    try:
        ours = IPv4Network(deployment.get("FARANDOLE_SUBNETS"))
        opened = open_ranges(deployment.get("FARANDOLE_PRIVATE_RANGES"))
    except ValueError as exc:
        return warning(
            CHECK,
            f"Not checked: FARANDOLE_SUBNETS or FARANDOLE_PRIVATE_RANGES is not made of addresses ({exc}).",
            "Correct it first.",
        )
    commands = swarm_commands(opened) if swarm else closing_commands(str(ours), opened)
    remedy = "\n".join((*commands, "and keep them over a restart: netfilter-persistent save"))
    if forwarded is None or incoming is None:
        return warning(
            CHECK,
            "Users' containers may reach private addresses, a cloud's metadata service and this machine's own ports; "
            "iptables does not show this user whether rules prevent it.",
            f"Run this as root, or make sure that these rules exist:\n{remedy}",
        )
    reached = _reached(SWARM_WAY if swarm else ours, forwarded, incoming, [*opened, *([] if swarm else [ours])])
    if reached:
        return warning(CHECK, f"Users' containers reach {', '.join(reached)}.", remedy)
    where = "; the swarm's other machines need the same rules" if swarm else ""
    return ok(CHECK, f"users' containers reach no private address, no metadata service and no own port{where}")


def _reached(origin: Origin, forwarded: str, incoming: str, exempt: Sequence[IPv4Network]) -> list[str]:
    """Return a description of each target that the rules leave open."""
    left = [each for each in PRIVATE if not is_closed(forwarded, origin, each, exempt)]
    metadata = [address for address in METADATA if any(address in each for each in left)]
    found = {
        f"private addresses ({_list(left)})": bool(left),
        f"a cloud's metadata service ({_list(metadata)})": bool(metadata),
        "this machine's own ports, except those of the loopback address": not is_closed(incoming, origin, None),
        f"the ports {_list(sorted(SWARM_PORTS, key=int))} of all machines, for NFS and the swarm itself": (
            origin == SWARM_WAY and not closes_ports(forwarded, origin, SWARM_PORTS)
        ),
    }
    return [phrase for phrase, open_ in found.items() if open_]


def open_ranges(text: str) -> list[IPv4Network]:
    """Return the address ranges in FARANDOLE_PRIVATE_RANGES; raises ValueError if a range is invalid."""
    return [IPv4Network(each.strip()) for each in text.split(",") if each.strip()]


def closing_commands(subnets: str, opened: Sequence[IPv4Network] = ()) -> tuple[str, ...]:
    """Return the commands that block private ranges and this machine's ports.

    Name servers, users' own networks and the ranges in ``opened`` stay reachable.
    """
    return _commands(f"-s {subnets}", (subnets, *map(str, opened)))


def swarm_commands(opened: Sequence[IPv4Network] = ()) -> tuple[str, ...]:
    """Return the commands for a machine of a swarm, whose rules do not apply to traffic within users' own networks."""
    ports = _list(sorted(SWARM_PORTS, key=int), ",")
    return (
        *_commands(f"-i {SWARM_WAY}", tuple(map(str, opened))),
        _for_both(f"DOCKER-USER -i {SWARM_WAY} -p $p -m multiport --dports {ports} -j REJECT"),
    )


def _commands(origin: str, opened: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commands in the order in which to run them; each command inserts its rules above the earlier rules."""
    private = _list(PRIVATE, ",")
    exception = (f"sudo iptables -I DOCKER-USER {origin} -d {','.join(opened)} -j RETURN",) if opened else ()
    return (
        f"sudo iptables -I DOCKER-USER {origin} -d {private} -j REJECT",
        # In some clouds and most local networks, the name server has a private address.
        _for_both(f"DOCKER-USER {origin} -d {private} -p $p --dport 53 -j RETURN"),
        *exception,
        _for_both(f"INPUT {origin} -p $p ! --dport 53 -m conntrack --ctstate NEW -j REJECT"),
    )


def _for_both(rule: str) -> str:
    return f"for p in tcp udp; do sudo iptables -I {rule}; done"


def _list(items: Sequence[object], separator: str = ", ") -> str:
    return separator.join(map(str, items))
