"""`python3 -m hub.doctor [FOLDER]`: check the machine for the deployment in FOLDER, by default the current folder.

The exit status is 1 if a check finds a fault or `.env` cannot be read, and 2 if the command line is wrong.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.doctor.address.origins import check_origins
from hub.doctor.address.tls import check_tls
from hub.doctor.deployment import Deployment
from hub.doctor.engine import EngineError, SocketEngine
from hub.doctor.env_file import check_settings
from hub.doctor.finding import Finding, Level, fault, warning
from hub.doctor.firewall.internet import check_internet
from hub.doctor.gpus import check_gpus
from hub.doctor.machine import check_clock, check_disk, check_memory, check_state
from hub.doctor.network import check_ipv6, check_mtu, check_subnets, read_routes, read_uplinks
from hub.doctor.ports import check_ports
from hub.doctor.quotas import check_homes
from hub.doctor.software import check_compose, check_engine, check_images, check_swarm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hub.doctor.engine import Engine


def check_all(deployment: Deployment) -> Iterator[Finding]:
    """Yield the findings of all checks; the checks that need an engine are skipped if no engine answers."""
    yield from check_settings(deployment)
    engine = SocketEngine(Path(deployment.get("FARANDOLE_ENGINE_SOCKET")))
    yield from _other_engine(deployment)
    yield check_compose()
    try:
        version = engine.get("/version")
        yield check_engine(version, str(engine.path))
        yield from _with_engine(deployment, engine, version)
    except EngineError as exc:
        yield fault("engine", str(exc), f"{exc.remedy}\nThe checks of images, disk, GPUs and networks need the engine.")
        yield from check_ports(deployment, None)
    yield check_origins(deployment)
    yield check_tls(deployment)
    yield check_clock()


def _with_engine(deployment: Deployment, engine: Engine, version: dict[str, Any]) -> Iterator[Finding]:
    info, networks, routes = engine.get("/info"), engine.get("/networks"), read_routes()
    yield from check_swarm(deployment, info, version)
    yield from check_images(deployment, engine)
    yield check_disk(deployment, engine, info)
    yield check_state(deployment, engine, info)
    yield check_homes(deployment, info)
    yield check_memory(info)
    yield check_gpus(deployment, info)
    yield from check_ports(deployment, engine)
    yield check_mtu(deployment, read_uplinks(routes), networks)
    yield check_subnets(deployment, routes, networks)
    yield check_ipv6(deployment, networks)
    yield from check_internet(deployment)


def _other_engine(deployment: Deployment) -> Iterator[Finding]:
    """Yield a warning if compose and the hub would use different engines."""
    host, socket = deployment.get("DOCKER_HOST"), deployment.get("FARANDOLE_ENGINE_SOCKET")
    if host and host != f"unix://{socket}":
        yield warning(
            "engine",
            f"DOCKER_HOST is {host}, so compose starts the hub there, but the hub uses {socket}.",
            "Set FARANDOLE_ENGINE_SOCKET to the same engine's socket, or unset DOCKER_HOST.",
        )


def main(arguments: list[str]) -> int:
    """Print the findings and the numbers of faults and warnings; return the exit status."""
    folder = Path(arguments[0]) if arguments else Path()
    if len(arguments) > 1 or not folder.is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    counts: Counter[Level] = Counter()
    try:
        deployment = Deployment.read(folder, os.environ)
    except PermissionError as exc:
        print(f"You may not read {exc.filename}. Run this as root, or as the owner of {folder}.", file=sys.stderr)
        return 1
    for finding in check_all(deployment):
        print(finding.text(), flush=True)
        counts[finding.level] += 1
    print(f"\nfaults: {counts[Level.FAULT]}, warnings: {counts[Level.WARNING]}")
    return 1 if counts[Level.FAULT] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
