"""This machine's engine for one test session at a time, without what a killed one left there.

Stacks of the compose file start again with the engine, hold their ports and networks, and make servers of their own.
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
"""What the names of all containers, networks and volumes of the tests begin with, or the names of their hubs."""
FIREWALLED = "10.217.0.0/20"
"""The addresses that tests write firewall rules about; nothing else here has any."""
SWEEP_SECONDS = 240.0


@contextmanager
def alone() -> Iterator[None]:
    """Have this machine's engine for oneself, swept; raises `SetUpError`."""
    with locked("farandole-test"):
        sweep()
        yield


def sweep() -> None:
    """Remove all that the tests' names are on, and their firewall rules; raises `SetUpError`.

    Again and again until nothing is found: as long as one of the hubs runs, it may start what was just removed.
    """
    said: list[str] = []
    try:
        wait_for(lambda: not _remove_found(said), "The removal of what an earlier test session left", SWEEP_SECONDS)
    except SetUpError as exc:
        raise SetUpError(f"{exc} Remove it by hand. The engine says:\n{''.join(said[-3:])}") from exc
    if os.geteuid() == 0:
        open_firewall()


def _remove_found(said: list[str]) -> bool:
    """Remove what there is now; returns whether there was anything, and adds to ``said`` what the engine refused."""
    removals = (
        (("rm", "--force", "--volumes"), _containers()),
        (("network", "rm"), _named("network")),
        (("volume", "rm", "--force"), _named("volume")),
    )
    for command, found in removals:
        if found:
            # What goes by itself meanwhile is an error here too.
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
    """Take away all rules about `FIREWALLED`; raises `SetUpError`."""
    for chain in ("DOCKER-USER", "INPUT"):
        for line in run("iptables", "-w", "60", "-S", chain).splitlines():
            words = shlex.split(line)
            if FIREWALLED in words:
                run("iptables", "-w", "60", "-D", *words[1:])
