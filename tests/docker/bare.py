"""A machine without images, and an operator's first steps there."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from tests.docker.engines import second

if TYPE_CHECKING:
    from collections.abc import Iterator

CABLE = IPv4Network("10.216.255.0/30")
SUBNETS = "10.216.128.0/20"
"""Addresses for the user networks of a hub there."""


@contextmanager
def bare_engine() -> Iterator[second.SecondEngine]:
    """Run an engine that accepts registries of this machine at `HERE` without TLS."""
    engine = second.SecondEngine(
        name="farandole-n",
        cable=CABLE,
        containers=IPv4Network("10.216.0.0/24"),
        settings={"insecure-registries": [str(CABLE)]},
    )
    with second.running(engine):
        yield engine


HERE = str(CABLE[1])
"""The address of this machine, seen from there."""


def empty(engine: second.SecondEngine) -> None:
    """Remove all images there."""
    ids = set(engine.docker("image", "ls", "--all", "--quiet").split())
    if ids:
        engine.docker("image", "rm", "--force", *ids)
