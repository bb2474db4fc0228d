"""Evaluates the rules of a firewall chain, as `iptables -S` prints them."""

from __future__ import annotations

import shlex
from ipaddress import IPv4Network
from itertools import pairwise
from typing import TYPE_CHECKING

from hub.doctor.command import output

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND_SECONDS = 30
ANYWHERE = IPv4Network("0.0.0.0/0")
CLOSING, OPENING = {"DROP", "REJECT"}, {"ACCEPT", "RETURN"}
PORTS = {"--dport", "--dports"}
LIMITED = {*PORTS, "--sport", "--sports", "-o", "--ctorigdst", "--icmp-type"}
"""Options that limit a rule to some packets.

Such a rule does not block all connections, so it is ignored. An exception is a rule for all ports except one, with an
option such as `! --dport 53`.
"""

Origin = IPv4Network | str
"""The origin of packets: a range of addresses, or the interface through which the packets arrive."""


def list_rules(chain: str) -> str | None:
    """Return the rules of a chain; None if `iptables` is missing or fails, for example because only root may run it."""
    return output("iptables", "-w", "5", "-S", chain, seconds=COMMAND_SECONDS)


def is_closed(rules: str, origin: Origin, target: IPv4Network | None, exempt: Sequence[IPv4Network] = ()) -> bool:
    """Return whether a chain blocks new TCP connections from ``origin`` to ``target`` (None: this machine).

    Rules that accept packets only for addresses in ``exempt`` are ignored.
    """
    for line in rules.splitlines():
        words = shlex.split(line)
        if words[:1] == ["-P"] and words[-1] in CLOSING:
            return True
        verdict = _option(words, "-j")
        if words[:1] != ["-A"] or not _takes_all_connections(words):
            continue
        if verdict in CLOSING and _comes_from(words, origin, whole=True) and _leads_to(words, target, whole=True):
            return True
        if verdict in OPENING and _opens(words, origin, target, exempt):
            return False
    return False


def closes_ports(rules: str, origin: Origin, ports: frozenset[str]) -> bool:
    """Return whether the chain's `multiport` rules block these ports for packets from ``origin``, both TCP and UDP."""
    closed = set()
    for line in rules.splitlines():
        words = shlex.split(line)
        given = (_option(words, "--dports") or "").split(",")
        if words[:1] == ["-A"] and _option(words, "-j") in CLOSING and ports <= set(given) and "!" not in words:
            closed |= {_option(words, "-p")} if _comes_from(words, origin, whole=True) else set()
    return {"tcp", "udp"} <= closed


def _opens(words: list[str], origin: Origin, target: IPv4Network | None, exempt: Sequence[IPv4Network]) -> bool:
    to = _option(words, "-d")
    if to is not None and any(_range(to).subnet_of(each) for each in exempt):
        return False
    return _comes_from(words, origin, whole=False) and _leads_to(words, target, whole=False)


def _takes_all_connections(words: list[str]) -> bool:
    """Return whether a rule matches new TCP connections to all ports, or to all ports except one."""
    turned = {after for before, after in pairwise(words) if before == "!"}
    if LIMITED.intersection(words) - turned or turned - PORTS or _option(words, "-p") not in {None, "tcp", "all"}:
        return False
    states = _option(words, "--ctstate") or _option(words, "--state")
    return states is None or "NEW" in states.split(",")


def _comes_from(words: list[str], origin: Origin, *, whole: bool) -> bool:
    interface, source = _option(words, "-i"), _option(words, "-s")
    if isinstance(origin, str):
        return interface in {None, origin} and (source is None or not whole)
    return interface is None and _covers(source, origin, whole=whole)


def _leads_to(words: list[str], target: IPv4Network | None, *, whole: bool) -> bool:
    destination = _option(words, "-d")
    if target is None:
        return destination is None
    return _covers(destination, target, whole=whole)


def _covers(text: str | None, wanted: IPv4Network, *, whole: bool) -> bool:
    found = _range(text) if text else ANYWHERE
    return wanted.subnet_of(found) if whole else wanted.overlaps(found)


def _range(text: str) -> IPv4Network:
    return IPv4Network(text, strict=False)


def _option(words: list[str], name: str) -> str | None:
    """Return the value after an option; None if the option is missing."""
    return words[words.index(name) + 1] if name in words[:-1] else None
