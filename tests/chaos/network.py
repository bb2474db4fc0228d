"""Cuts the network between two processes on one machine, or between two containers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import psutil

MARK = "farandole-chaos"
"""The comment on the packet rules of soak tests, by which the rules of killed soak tests are found."""


class Cut:
    """A network cut between two processes, from `make` until `restore`. It needs root and iptables.

    Connections that are opened later are not cut, because packet rules can distinguish processes on one machine only by
    their ports.
    """

    def __init__(self, one: int, other: int) -> None:
        self._pairs = _pairs(one, other)

    def make(self) -> None:
        """Drop all packets between the two processes. Raises RuntimeError if they have no connection."""
        if not self._pairs:
            raise RuntimeError("there is no connection between the two processes that could be cut")
        for pair in self._pairs:
            _rule("-I", *_match(pair))

    @staticmethod
    def possible() -> bool:
        """Return whether this user can set packet rules on this machine."""
        if os.geteuid() != 0 or shutil.which("iptables") is None:
            return False
        return subprocess.run(["iptables", "-w", "-L", "INPUT"], capture_output=True, check=False).returncode == 0

    def restore(self) -> None:
        """Accept the packets again."""
        for pair in self._pairs:
            # If `make` failed, some of the rules do not exist.
            _rule("-D", *_match(pair), check=False)

    @staticmethod
    def restore_all() -> None:
        """Remove the cuts that killed soak tests have left behind."""
        listed = subprocess.run(["iptables", "-w", "-S", "INPUT"], capture_output=True, text=True, check=True).stdout
        for rule in map(shlex.split, listed.splitlines()):
            if MARK in rule:
                _rule("-D", *rule[2:])


class Blackhole:
    """A network cut between two containers until `restore`. It needs root and nsenter.

    The containers are given by process id and address. They keep their addresses, and can still reach other containers.
    """

    def __init__(self, one_pid: int, one_address: str, other_pid: int, other_address: str) -> None:
        self._ways = [(one_pid, other_address), (other_pid, one_address)]
        for way in self._ways:
            _route("add", *way, check=True)

    @staticmethod
    def possible() -> bool:
        """Return whether this user can change a container's routes on this machine."""
        return os.geteuid() == 0 and None not in {shutil.which("nsenter"), shutil.which("ip")}

    def restore(self) -> None:
        """Remove the cut. Errors are ignored, because a container that has ended has no routes left."""
        for way in self._ways:
            _route("del", *way, check=False)


def _route(what: str, pid: int, address: str, *, check: bool) -> None:
    command = ["nsenter", "-t", str(pid), "-n", "ip", "route", what, "blackhole", address]
    subprocess.run(command, capture_output=True, check=check)


def _pairs(one: int, other: int) -> list[tuple[int, int]]:
    """Return the pairs of ports (from, to) of all connections between two processes, in both directions."""
    theirs = {(found.laddr.port, found.raddr.port) for found in _connections(other)}
    ours = {(found.laddr.port, found.raddr.port) for found in _connections(one)}
    return sorted({pair for near, far in ours if (far, near) in theirs for pair in ((near, far), (far, near))})


def _connections(pid: int) -> list[psutil._common.pconn]:
    found = psutil.Process(pid).net_connections("tcp")
    return [each for each in found if each.status == psutil.CONN_ESTABLISHED]


def _match(pair: tuple[int, int]) -> list[str]:
    source, target = map(str, pair)
    ours = ["-m", "comment", "--comment", MARK]
    return ["-i", "lo", "-p", "tcp", "--sport", source, "--dport", target, *ours, "-j", "DROP"]


def _rule(what: str, *match: str, check: bool = True) -> None:
    subprocess.run(["iptables", "-w", what, "INPUT", *match], capture_output=True, check=check)
