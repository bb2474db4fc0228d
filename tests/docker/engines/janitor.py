"""Reserve this machine's engine for one test session at a time, and remove what killed sessions have left there.

A killed session leaves hubs that restart with the engine, occupy ports and networks, and start servers.
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
"""The names of all containers, networks, volumes and hubs of the tests have this prefix."""
FIREWALLED = "10.217.0.0/20"
"""The address range that the tests use in firewall rules. Nothing else on this machine uses it."""
SWEEP_SECONDS = 240.0


@contextmanager
def alone() -> Iterator[None]:
    """Reserve this machine's engine and remove what earlier sessions have left. Raises `SetUpError` if that fails."""
    with locked("farandole-test"):
        sweep()
        yield


def sweep() -> None:
    """Remove all objects whose names have the tests' prefix, and the tests' firewall rules.

    The removal is repeated until nothing is left, because a hub that is still running may recreate what was just
    removed. Raises `SetUpError` if something remains after `SWEEP_SECONDS`.
    """
    said: list[str] = []
    try:
        wait_for(lambda: not _remove_found(said), "Removing what an earlier test session left behind", SWEEP_SECONDS)
    except SetUpError as exc:
        raise SetUpError(f"{exc} Remove it by hand. The last errors from the engine:\n{''.join(said[-3:])}") from exc
    if os.geteuid() == 0:
        open_firewall()


def _remove_found(said: list[str]) -> bool:
    """Remove the objects that exist now and return whether there were any. Add the engine's errors to ``said``."""
    removals = (
        (("rm", "--force", "--volumes"), _containers()),
        (("network", "rm"), _named("network")),
        (("volume", "rm", "--force"), _named("volume")),
    )
    for command, found in removals:
        if found:
            # The command also fails if an object vanishes during the call, so its status is ignored.
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
    """Remove all firewall rules that contain `FIREWALLED`. Raises `SetUpError` if iptables fails."""
    for chain in ("DOCKER-USER", "INPUT"):
        for line in run("iptables", "-w", "60", "-S", chain).splitlines():
            words = shlex.split(line)
            if FIREWALLED in words:
                run("iptables", "-w", "60", "-D", *words[1:])
