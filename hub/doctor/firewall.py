"""Access of users' containers to more than the internet: the machine's own ports, and a cloud's metadata service."""

from __future__ import annotations

import shlex
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import TYPE_CHECKING

from hub.doctor.command import output
from hub.doctor.finding import Finding, ok, warning

if TYPE_CHECKING:
    from hub.doctor.deployment import Deployment

CHECK = "internet"
SWARM_WAY = "-i docker_gwbridge"
METADATA = IPv4Address("169.254.169.254")
ANYWHERE = IPv4Network("0.0.0.0/0")
CLOSING = {"DROP", "REJECT"}
COMMAND_SECONDS = 30
PORTS = {"--dport", "--dports"}
LIMITED = {*PORTS, "-i", "-o", "--ctorigdst"}
"""Options that limit a rule to other packets, or to a part of those it must block; all ports but one is enough."""


def check_internet(deployment: Deployment) -> Finding:
    """Check for the rules that block what FARANDOLE_INTERNET=yes leaves open."""
    if deployment.get("FARANDOLE_INTERNET") != "yes":
        return ok(CHECK, "users' containers reach nothing outside their networks")
    if deployment.get("FARANDOLE_DEPLOYMENT") == "swarm":
        return warning(
            CHECK,
            "Not checked on a swarm: users' containers leave each machine by its bridge docker_gwbridge and reach that "
            "machine's own ports and a cloud's metadata service.",
            "\n".join(("Set FARANDOLE_INTERNET=no, or add these rules on every machine:", *_closing(SWARM_WAY))),
        )
    return judge_rules(deployment, _rules("DOCKER-USER"), _rules("INPUT"))


def judge_rules(deployment: Deployment, forwarded: str | None, incoming: str | None) -> Finding:
    """Judge the two chains, as `iptables -S` prints them; None if this user may not list them."""
    setting = deployment.get("FARANDOLE_SUBNETS")
    remedy = "\n".join((*closing_commands(setting), "and keep them over a restart: netfilter-persistent save"))
    if forwarded is None or incoming is None:
        return warning(
            CHECK,
            "Users' containers may reach a cloud's metadata service and this machine's own ports; iptables does not "
            "show this user whether rules prevent it.",
            f"Run this as root, or make sure that these rules exist:\n{remedy}",
        )
    try:
        ours = IPv4Network(setting)
    except ValueError:
        return warning(CHECK, "Not checked: FARANDOLE_SUBNETS is not a range of addresses.", "Correct it first.")
    reached = [] if _is_closed(forwarded, ours, METADATA) else [f"a cloud's metadata service ({METADATA})"]
    if not _is_closed(incoming, ours, None):
        reached.append("this machine's own ports, except those of the loopback address")
    if reached:
        return warning(CHECK, f"Users' containers reach {' and '.join(reached)}.", remedy)
    return ok(CHECK, "users' containers reach neither a cloud's metadata service nor this machine's own ports")


def closing_commands(subnets: str) -> tuple[str, str]:
    """Return the commands that block both, except port 53: some clouds have their name server at such an address."""
    return _closing(f"-s {subnets}")


def _closing(origin: str) -> tuple[str, str]:
    others = f"{origin} -p $p ! --dport 53"
    return (
        f"for p in tcp udp; do sudo iptables -I DOCKER-USER {others} -d 169.254.0.0/16 -j REJECT; done",
        f"for p in tcp udp; do sudo iptables -I INPUT {others} -m conntrack --ctstate NEW -j REJECT; done",
    )


def _rules(chain: str) -> str | None:
    return output("iptables", "-w", "5", "-S", chain, seconds=COMMAND_SECONDS)


def _is_closed(rules: str, source: IPv4Network, target: IPv4Address | None) -> bool:
    """Whether a chain blocks TCP from ``source`` to ``target``, or to this machine if that is None."""
    for line in rules.splitlines():
        words = shlex.split(line)
        if words[:1] == ["-P"] and words[-1] in CLOSING:
            return True
        verdict = _option(words, "-j")
        if words[:1] != ["-A"] or verdict is None or not _concerns(words, source, target):
            continue
        if verdict in CLOSING:
            return True
        if len(words) == 4:
            # An unconditional RETURN or ACCEPT: the rules after it have no effect.
            return False
    return False


def _concerns(words: list[str], source: IPv4Network, target: IPv4Address | None) -> bool:
    turned = {after for before, after in pairwise(words) if before == "!"}
    limited = LIMITED.intersection(words) - turned
    if limited or turned - PORTS or _option(words, "-p") not in {None, "tcp", "all"}:
        return False
    states = _option(words, "--ctstate")
    if states is not None and "NEW" not in states.split(","):
        return False
    if not source.subnet_of(IPv4Network(_option(words, "-s") or ANYWHERE)):
        return False
    destination = _option(words, "-d")
    if target is None:
        return destination is None
    return target in IPv4Network(destination or ANYWHERE)


def _option(words: list[str], name: str) -> str | None:
    """Return the value after an option; None if the option is missing."""
    return words[words.index(name) + 1] if name in words[:-1] else None
