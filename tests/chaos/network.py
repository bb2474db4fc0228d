"""Network cuts: between two processes of one machine, and between two containers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import psutil

MARK = "farandole-chaos"
"""The comment that marks the rules of soaks, also of killed ones."""


class Cut:
    """A cut between two processes, from `make` to `restore`; needs root and iptables.

    Connections opened later are not cut, because processes on one machine can be told apart only by their ports.
    """

    def __init__(self, one: int, other: int) -> None:
        self._pairs = _pairs(one, other)

    def make(self) -> None:
        """Drop all packets. Raises: RuntimeError if the two have no connection."""
        if not self._pairs:
            raise RuntimeError("there is no connection between the two processes that could be cut")
        for pair in self._pairs:
            _rule("-I", *_match(pair))

    @staticmethod
    def possible() -> bool:
        """Return whether this user may set packet rules here."""
        if os.geteuid() != 0 or shutil.which("iptables") is None:
            return False
        return subprocess.run(["iptables", "-w", "-L", "INPUT"], capture_output=True, check=False).returncode == 0

    def restore(self) -> None:
        """Let the packets through again."""
        for pair in self._pairs:
            # If `make` failed, some rules are missing.
            _rule("-D", *_match(pair), check=False)

    @staticmethod
    def restore_all() -> None:
        """Remove cuts left over from killed soak tests."""
        listed = subprocess.run(["iptables", "-w", "-S", "INPUT"], capture_output=True, text=True, check=True).stdout
        for rule in map(shlex.split, listed.splitlines()):
            if MARK in rule:
                _rule("-D", *rule[2:])


class Blackhole:
    """A cut between two containers, given their process ids and addresses, until `restore`; needs root and nsenter.

    The two cannot reach each other. Both keep their addresses, and other containers still reach both.
    """

    def __init__(self, one_pid: int, one_address: str, other_pid: int, other_address: str) -> None:
        self._ways = [(one_pid, other_address), (other_pid, one_address)]
        for way in self._ways:
            _route("add", *way, check=True)

    @staticmethod
    def possible() -> bool:
        """Return whether this user may enter a container's network here."""
        return os.geteuid() == 0 and None not in {shutil.which("nsenter"), shutil.which("ip")}

    def restore(self) -> None:
        """Remove the cut; the routes of a container that has ended are already gone."""
        for way in self._ways:
            _route("del", *way, check=False)


def _route(what: str, pid: int, address: str, *, check: bool) -> None:
    command = ["nsenter", "-t", str(pid), "-n", "ip", "route", what, "blackhole", address]
    subprocess.run(command, capture_output=True, check=check)


def _pairs(one: int, other: int) -> list[tuple[int, int]]:
    """Return the ports (from, to) of all connections between two processes, in both directions."""
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
