"""A network that is cut: between two processes of one machine, and between two containers."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import psutil

MARK = "farandole-chaos"
"""The comment by which rules of ours are known, also those of a soak that was killed."""


class Cut:
    """A cut between two processes, from `make` until `reconcile`; needs root and iptables.

    Connections that they make later are left alone, since on one machine nothing but their ports tells them apart.
    """

    def __init__(self, one: int, other: int) -> None:
        self._pairs = _pairs(one, other)

    def make(self) -> None:
        """Let no packet pass any more. Raises: RuntimeError where the two have no connection."""
        if not self._pairs:
            raise RuntimeError("there is no connection between the two processes that could be cut")
        for pair in self._pairs:
            _rule("-I", *_match(pair))

    @staticmethod
    def possible() -> bool:
        """Whether this user may set rules for packets here."""
        if os.geteuid() != 0 or shutil.which("iptables") is None:
            return False
        return subprocess.run(["iptables", "-w", "-L", "INPUT"], capture_output=True, check=False).returncode == 0

    def reconcile(self) -> None:
        """Let the packets pass again."""
        for pair in self._pairs:
            # Not all are there where making them has failed.
            _rule("-D", *_match(pair), check=False)

    @staticmethod
    def mend_all() -> None:
        """Let pass what soaks have cut that were killed."""
        listed = subprocess.run(["iptables", "-w", "-S", "INPUT"], capture_output=True, text=True, check=True).stdout
        for rule in map(shlex.split, listed.splitlines()):
            if MARK in rule:
                _rule("-D", *rule[2:])


class Blackhole:
    """A cut between two containers, given their process ids and addresses, until `reconcile`; needs root and nsenter.

    Neither finds a way to the other any more, while both keep their addresses and all others reach them.
    """

    def __init__(self, one_pid: int, one_address: str, other_pid: int, other_address: str) -> None:
        self._ways = [(one_pid, other_address), (other_pid, one_address)]
        for way in self._ways:
            _route("add", *way, check=True)

    @staticmethod
    def possible() -> bool:
        """Whether this user may enter a container's network here."""
        return os.geteuid() == 0 and None not in {shutil.which("nsenter"), shutil.which("ip")}

    def reconcile(self) -> None:
        """Let them find each other again; a container that has gone took its part along."""
        for way in self._ways:
            _route("del", *way, check=False)


def _route(what: str, pid: int, address: str, *, check: bool) -> None:
    command = ["nsenter", "-t", str(pid), "-n", "ip", "route", what, "blackhole", address]
    subprocess.run(command, capture_output=True, check=check)


def _pairs(one: int, other: int) -> list[tuple[int, int]]:
    """Return the ports (from, to) of all connections between two processes, each in both directions."""
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
