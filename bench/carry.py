"""Measure the time from `docker compose pull` on an empty machine to the first login page, and the download size."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.record import Record, median_of
from tests.docker import registry
from tests.docker.bare import HERE, SUBNETS, bare_engine, empty
from tests.docker.engines.janitor import alone
from tests.docker.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.engines.second import SecondEngine

NOTE = "registry and engine share the cores and the disk of this machine"


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records carry_seconds and carry_bytes."""
    with alone(), bare_engine() as machine, registry.running(HERE) as published:
        settings = published.publish()
        runs = [carry(machine, published, settings) for _ in range(repeats)]
    seconds, sent = zip(*runs, strict=True)
    yield median_of("carry_seconds", seconds, "s", note=NOTE)
    yield median_of("carry_bytes", sent, "bytes", note=f"{sent[0] / 1e6:.0f} MB, compressed, hub and notebook image")


def carry(machine: SecondEngine, published: registry.Registry, settings: dict[str, str]) -> tuple[float, float]:
    """Return the seconds until the hub serves its login page, and the number of bytes that the registry sent."""
    empty(machine)
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        stack = Stack(Path(folder), subnets=SUBNETS, engine=machine, **settings)
        before, start = published.sent(), time.perf_counter()
        try:
            stack.compose("pull")
            stack.up()
            return time.perf_counter() - start, published.sent() - before
        finally:
            stack.down()
