"""This machine's engine for one test session at a time, without the remains of a killed session.

Stacks of the compose file restart with the engine, hold their ports and networks, and start servers.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.docker.engines.daemon import wait_for
from tests.docker.engines.debian import SetUpError, run
from tests.docker.engines.lock import locked

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX = "farandole-test-"
"""The prefix of the names of all containers, networks and volumes of the tests, or of their hubs."""
FIREWALLED = "10.217.0.0/20"
"""The addresses of the tests' firewall rules; nothing else here uses them."""
SWEEP_SECONDS = 240.0


@contextmanager
def alone() -> Iterator[None]:
    """Hold this machine's engine alone, and clean it first; raises `SetUpError`."""
    with locked("farandole-test"):
        sweep()
        yield


def sweep() -> None:
    """Remove everything with the tests' names, and their firewall rules; raises `SetUpError`.

    Repeats until nothing is found: a hub that still runs may start again what was just removed.
    """
    said: list[str] = []
    try:
        wait_for(lambda: not _remove_found(said), "The removal of what an earlier test session left", SWEEP_SECONDS)
    except SetUpError as exc:
        raise SetUpError(f"{exc} Remove it by hand. The engine says:\n{''.join(said[-3:])}") from exc
    if os.geteuid() == 0:
        open_firewall()


def _remove_found(said: list[str]) -> bool:
    """Remove what exists now; return whether there was anything, and add the engine's refusals to ``said``."""
    removals = (
        (("rm", "--force", "--volumes"), _containers()),
        (("network", "rm"), _named("network")),
        (("volume", "rm", "--force"), _named("volume")),
    )
    for command, found in removals:
        if found:
            # An object that vanishes during the call is an error here too.
            done = subprocess.run(["docker", *command, *found], capture_output=True, text=True, check=False)
            said.append(done.stderr)
    return any(found for _, found in removals)


def _containers() -> list[str]:
    format_ = '{{.ID}} {{.Names}} {{.Label "farandole.hub"}}'
    lines = run("docker", "ps", "--all", "--no-trunc", "--format", format_).splitlines()
    parts = [line.split() for line in lines]
    return [words[0] for words in parts if any(word.startswith(PREFIX) for word in words[1:])]


def _named(kind: str) -> list[str]:
    names = run("docker", kind, "ls", "--format", "{{.Name}}").split()
    return [name for name in names if name.startswith(PREFIX)]


def open_firewall() -> None:
    """Remove all rules about `FIREWALLED`; raises `SetUpError`."""
    for chain in ("DOCKER-USER", "INPUT"):
        for line in run("iptables", "-w", "60", "-S", chain).splitlines():
            words = shlex.split(line)
            if FIREWALLED in words:
                run("iptables", "-w", "60", "-D", *words[1:])
