"""Measure how much commits and asynchronous checkpoints of a 100 MB model slow down training on two workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from farandole.driver.cluster import Cluster

from bench.record import Record, median_of
from bench.site import bench_hub, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = Path(__file__).parent / "loops" / "checkpoint_step.py"


def measure(repeats: int) -> Iterator[Record]:
    """Yield the overhead of a commit every 10 steps and of a checkpoint every 10 s, in percent."""
    with bench_hub(), Cluster.start(workers=2, profile="bench", backend="torch", progress=quiet) as cluster:
        found = cluster.train(f"PAIRS = {repeats}\n{LOOP.read_text()}").result
    note = f"100 MB, steps of {found['step_ms']:.0f} ms"
    yield median_of("commit_overhead_percent", found["commit"], "%", note=f"a commit every 10 steps, {note}")
    yield median_of(
        "checkpoint_overhead_percent", found["checkpoint"], "%", limit="<= 5.0", note=f"one every 10 s, {note}"
    )
