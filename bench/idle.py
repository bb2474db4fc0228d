"""Measure what a rank of a formed Horovod world costs while no cell runs, and what resting adds to the next cell.

Both sides use the same two ranks in turns: with Horovod's idle cycle of `IDLE_CYCLE_MILLISECONDS`, and without it. A
switch to another backend and back forms the world with the new setting.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from farandole.driver.cluster import Cluster
from farandole.driver.world.backends import horovod

from bench.record import Record, median_of
from bench.site import bench_hub, quiet
from tests.cells import SUM

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = Path(__file__).parent / "loops" / "idle.py"
SETTLE_SECONDS = 2.0
"""Time after a cell until the ranks rest. Horovod rests after an idle cycle without tensors."""
WINDOW_SECONDS = 5.0
CELLS = 5


class Side(NamedTuple):
    """The results of one side of a pair: the costs of the rank that costs more, and durations of cells in ms."""

    cpu: float
    rate: float
    after_idle: float
    at_once: float


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records idle_cpu_percent, idle_kilobytes_per_second and idle_next_cell_milliseconds."""
    with bench_hub(), Cluster.start(workers=2, profile="bench", backend="horovod", progress=quiet) as cluster:
        pairs = [(side(cluster, horovod.IDLE_CYCLE_MILLISECONDS), side(cluster, 0)) for _ in range(repeats)]
    yield cost("idle_cpu_percent", [(rests.cpu, spins.cpu) for rests, spins in pairs], "% of a core", "<= 1.0")
    yield cost("idle_kilobytes_per_second", [(rests.rate, spins.rate) for rests, spins in pairs], "kB / s", "<= 2.0")
    after, without = (median(one.after_idle for one in side) for side in zip(*pairs, strict=True))
    at_once = median(rests.at_once for rests, _ in pairs)
    yield median_of(
        "idle_next_cell_milliseconds",
        (rests.after_idle - spins.after_idle for rests, spins in pairs),
        "ms added",
        limit="<= 5.0",
        note=f"{after:.1f} after resting, {without:.1f} without resting, {at_once:.1f} directly after a cell",
    )


def cost(name: str, pairs: list[tuple[float, float]], unit: str, limit: str) -> Record:
    """Return a record of what resting ranks cost; its note shows the cost without resting."""
    rests, spins = zip(*pairs, strict=True)
    return median_of(name, rests, unit, limit=limit, note=f"without resting {median(spins):.3g}")


def side(cluster: Cluster, milliseconds: int) -> Side:
    """Form the world with an idle cycle of ``milliseconds``, and measure it."""
    with patch.object(horovod, "IDLE_CYCLE_MILLISECONDS", milliseconds):
        cluster.train("pass", backend="none")
        cluster.train("pass", backend="horovod")
    cluster.run(f"{SETTLE_SECONDS = }\n{WINDOW_SECONDS = }\n{LOOP.read_text()}")
    time.sleep(SETTLE_SECONDS + WINDOW_SECONDS + 1)
    cluster.run("measuring.join()")
    idle = [values["idle"] for values in cluster.pull("idle").values()]
    cells = [(cell_after(cluster, SETTLE_SECONDS), cell_after(cluster, 0)) for _ in range(CELLS)]
    cpu, rate = (max(column) for column in zip(*idle, strict=True))
    return Side(cpu, rate, *(median(column) for column in zip(*cells, strict=True)))


def cell_after(cluster: Cluster, seconds: float) -> float:
    """Return the milliseconds that a cell with a collective takes after ``seconds`` without a cell."""
    time.sleep(seconds)
    began = time.perf_counter()
    cluster.run(SUM["horovod"])
    return 1000 * (time.perf_counter() - began)
