"""Measures the drivers of clusters with increasing numbers of ranks; each driver runs in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from bench.record import growth_exponent, median_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.record import Record

RANKS_PER_WORKER = 4
START_SECONDS = 120
"""The time limit in seconds for starting 256 workers."""
DRIVER_SECONDS = 900
ROWS = {
    "start": ("start of all workers, s", 1, ""),
    "cell": ("a cell that does nothing, ms", 1000, "fanout"),
    "cell_cpu": ("  the driver's CPU for it, ms", 1000, "driver_cpu"),
    "noisy_cell": ("a cell, each rank prints, ms", 1000, "output"),
    "training": ("a run, each rank reports, ms", 1000, "training"),
    "megabytes": ("memory for the ranks, MB", 1, "driver_memory"),
    "stop": ("stop of all workers, s", 1, ""),
}
"""The label and the scale of each quantity, and a name for the record of its growth.

Quantities with a name may grow at most linearly with the number of ranks. The growth of the others has no limit.
"""


@dataclass
class Clusters:
    """The measurements of all repeats, by quantity and number of ranks."""

    runs: dict[str, dict[int, list[float]]] = field(default_factory=dict)

    def rows(self) -> dict[str, dict[int, float]]:
        """Return the rows of the growth table."""
        return {
            name: {size: scale * median(values) for size, values in self.runs[key].items()}
            for key, (name, scale, _) in ROWS.items()
        }


def measure(sizes: Sequence[int], repeats: int) -> Clusters:
    """Run and measure a driver for each size and repeat."""
    found = Clusters()
    for _ in range(repeats):
        for size in sizes:
            for key, value in _drive(size).items():
                found.runs.setdefault(key, {}).setdefault(size, []).append(value)
            print(f"  {size:,} ranks", flush=True)
    return found


def _drive(size: int) -> dict[str, float]:
    ranks = min(size, RANKS_PER_WORKER)
    command = [sys.executable, "-m", "bench.scale.driver", str(size // ranks), str(ranks)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=DRIVER_SECONDS)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def records(found: Clusters) -> Iterator[Record]:
    """Yield the results of the measurements as records."""
    most = max(found.runs["start"])
    start = found.runs["start"][most]
    yield median_of(
        f"scale_start_seconds_{most // RANKS_PER_WORKER}",
        start,
        "s",
        limit=f"<= {START_SECONDS}",
        note=f"workers with {most:,} ranks in total",
    )
    for size in (min(found.runs["cell"]), most):
        yield median_of(f"scale_fanout_milliseconds_{size}", [1000 * one for one in found.runs["cell"][size]], "ms")
        yield median_of(f"scale_driver_megabytes_{size}", found.runs["megabytes"][size], "MB")
    rows = found.rows()
    for label, _, name in ROWS.values():
        if name:
            power = growth_exponent(rows[label])
            note = f"to {most:,} ranks"
            yield median_of(f"scale_{name}_growth_exponent", [power], "power", limit="<= 1.0", note=note)
