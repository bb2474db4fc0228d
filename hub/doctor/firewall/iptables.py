"""Evaluates the rules of a firewall chain, as `iptables -S` prints them."""

from __future__ import annotations

import shlex
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, NamedTuple

from hub.doctor.command import output

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND_SECONDS = 30
CLOSING, OPENING = {"DROP", "REJECT"}, {"ACCEPT", "RETURN"}
TCP = {"tcp", "all"}
PORTS = {"--dport", "--dports"}
NAME_SERVER = "53"
"""The port that users' containers may reach on all addresses."""
MODULES = {"tcp", "udp", "multiport", "conntrack", "state", "comment"}
ADMITTED = {"-p": TCP, "-m": MODULES, "--ctstate": {"NEW"}, "--state": {"NEW"}}
"""The values with which an option matches all new TCP connections. Another module may limit a rule to some packets."""
WITHOUT_EFFECT = {"-j", "--reject-with", "--comment"}
"""The options that limit no rule."""
LOOPBACK = IPv4Network("127.0.0.0/8")
"""The addresses of this machine that containers never reach."""
OLD = {"ESTABLISHED", "RELATED", "INVALID"}
"""The states that no new connection has."""
BRIDGE = "br-"
"""The prefix of the names that Docker gives to the network interfaces of its networks."""

Origin = IPv4Network | str
"""The origin of packets: a range of addresses, or the interface through which the packets arrive."""


class Option(NamedTuple):
    """An option of a rule: ``Option("--dport", "53", True)`` stands for ``! --dport 53``."""

    name: str
    value: str
    negated: bool


def list_rules(chain: str) -> str | None:
    """Return the rules of a chain; None if `iptables` is missing or fails, for example because only root may run it."""
    return output("iptables", "-w", "5", "-S", chain, seconds=COMMAND_SECONDS)


def is_closed(rules: str, origin: Origin, target: IPv4Network | None, exempt: Sequence[IPv4Network] = ()) -> bool:
    """Return whether a chain blocks new TCP connections from ``origin`` to ``target`` (None: this machine).

    - A rule that blocks packets counts only if it matches all these connections, except those to name servers.
    - A rule that accepts packets counts if it may match one of these connections, unless that leads to a name server or
      to an address in ``exempt``.
    - Rules of other chains are not evaluated.
    """
    drops = False
    for line in rules.splitlines():
        words = shlex.split(line)
        if words[:1] == ["-P"]:
            # The chain's policy is listed first, but it applies only to packets that match no rule.
            drops = words[-1] in CLOSING
        elif words[:1] == ["-A"]:
            rule = _options(words[2:])
            if _verdict(rule) in CLOSING and all(_covers(option, origin, target) for option in rule):
                return True
            if _verdict(rule) in OPENING and not any(_misses(option, origin, target, exempt) for option in rule):
                return False
    return drops


def closes_ports(rules: str, origin: Origin, ports: frozenset[str]) -> bool:
    """Return whether the chain's `multiport` rules block these ports for packets from ``origin``, both TCP and UDP."""
    closed = set()
    for words in map(shlex.split, rules.splitlines()):
        rule = _options(words[2:]) if words[:1] == ["-A"] else []
        given = {option.name: option.value for option in rule if not option.negated}
        others = [option for option in rule if option.negated or option.name not in {"-p", "--dports"}]
        blocks = _verdict(rule) in CLOSING and all(_covers(option, origin, None) for option in others)
        if blocks and ports <= set(given.get("--dports", "").split(",")):
            closed.add(given.get("-p"))
    return {"tcp", "udp"} <= closed


def _options(words: list[str]) -> list[Option]:
    """Return the options of a rule."""
    options: list[Option] = []
    negated = False
    for word in words:
        if word == "!":
            negated = True
        elif word.startswith("-"):
            options.append(Option(word, "", negated))
            negated = False
        else:
            options[-1] = options[-1]._replace(value=f"{options[-1].value} {word}".strip())
    return options


def _verdict(rule: list[Option]) -> str | None:
    return next((option.value for option in rule if option.name == "-j"), None)


def _covers(option: Option, origin: Origin, target: IPv4Network | None) -> bool:
    """Return whether an option certainly matches all new TCP connections, except those to name servers."""
    name, value, negated = option
    if negated or name in PORTS:
        return negated and name in PORTS and value == NAME_SERVER
    if name in ADMITTED:
        return not ADMITTED[name].isdisjoint(value.split(","))
    if name == "-i":
        return value == origin
    wanted = {"-s": origin, "-d": target}.get(name)
    return name in WITHOUT_EFFECT or (isinstance(wanted, IPv4Network) and wanted.subnet_of(_range(value)))


def _misses(option: Option, origin: Origin, target: IPv4Network | None, exempt: Sequence[IPv4Network]) -> bool:
    """Return whether an option certainly matches no new TCP connection, or only to name servers or ``exempt``."""
    name, value, negated = option
    match name:
        case "-s":
            return isinstance(origin, IPv4Network) and _is_outside(origin, option)
        case "-i":
            return _is_elsewhere(origin, option)
        case "-d":
            return _leads_elsewhere(option, target, exempt)
        case "-p":
            return (value in TCP) is negated
        case "--ctstate" | "--state":
            states = set(value.split(","))
            return "NEW" in states if negated else states <= OLD
        case _:
            return name in PORTS and value == NAME_SERVER and not negated


def _leads_elsewhere(option: Option, target: IPv4Network | None, exempt: Sequence[IPv4Network]) -> bool:
    found = _range(option.value)
    exempted = not option.negated and any(found.subnet_of(each) for each in (LOOPBACK, *exempt))
    return exempted or (target is not None and _is_outside(target, option))


def _is_outside(wanted: IPv4Network, option: Option) -> bool:
    found = _range(option.value)
    return wanted.subnet_of(found) if option.negated else not wanted.overlaps(found)


def _is_elsewhere(origin: Origin, option: Option) -> bool:
    """Return whether packets from ``origin`` certainly do not arrive through the interfaces of an option."""
    stem = option.value.removesuffix("+")
    is_pattern = stem != option.value
    if isinstance(origin, str):
        matches = origin.startswith(stem) if is_pattern else origin == stem
        return matches is option.negated
    # The rules do not show which of Docker's bridges belong to users' networks.
    may_match = stem.startswith(BRIDGE) or (is_pattern and BRIDGE.startswith(stem))
    return not (option.negated or may_match)


def _range(text: str) -> IPv4Network:
    return IPv4Network(text, strict=False)
