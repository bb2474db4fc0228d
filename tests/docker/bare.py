"""A second Docker engine that starts without images, like the engine of a new machine."""

from __future__ import annotations

from contextlib import contextmanager
from ipaddress import IPv4Network
from typing import TYPE_CHECKING

from tests.docker.engines import second

if TYPE_CHECKING:
    from collections.abc import Iterator

CABLE = IPv4Network("10.216.255.0/30")
SUBNETS = "10.216.128.0/20"
"""The address range from which a hub on this engine takes its users' networks."""


@contextmanager
def bare_engine() -> Iterator[second.SecondEngine]:
    """Run the engine, which may pull images from a registry at `HERE` without TLS."""
    engine = second.SecondEngine(
        name="farandole-n",
        cable=CABLE,
        containers=IPv4Network("10.216.0.0/24"),
        settings={"insecure-registries": [str(CABLE)]},
    )
    with second.running(engine):
        yield engine


HERE = str(CABLE[1])
"""The address at which the second engine reaches this machine."""


def empty(engine: second.SecondEngine) -> None:
    """Remove all images from the engine."""
    ids = set(engine.docker("image", "ls", "--all", "--quiet").split())
    if ids:
        engine.docker("image", "rm", "--force", *ids)
