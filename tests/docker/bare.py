"""A machine that has nothing: an engine without images, and what an operator does there first."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from tests.docker.engines import second

if TYPE_CHECKING:
    from collections.abc import Iterator

CABLE = IPv4Network("10.216.255.0/30")
SUBNETS = "10.216.128.0/20"
"""For the networks of a hub's users there."""


@contextmanager
def bare_engine() -> Iterator[second.SecondEngine]:
    """Run an engine that reaches registries of this machine at `HERE`, without TLS."""
    engine = second.SecondEngine(
        name="farandole-n",
        cable=CABLE,
        containers=IPv4Network("10.216.0.0/24"),
        settings={"insecure-registries": [str(CABLE)]},
    )
    with second.running(engine):
        yield engine


HERE = str(CABLE[1])
"""This machine, as that one sees it."""


def empty(engine: second.SecondEngine) -> None:
    """Remove all images there."""
    ids = set(engine.docker("image", "ls", "--all", "--quiet").split())
    if ids:
        engine.docker("image", "rm", "--force", *ids)
