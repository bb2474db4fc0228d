"""``python -m bench.scale.driver WORKERS RANKS``: measure a driver whose workers are stand-ins.

This prints one line of JSON with the following values:

- the durations in seconds of the start, the stop, an empty cell, a cell whose ranks print different lines, and a run
  whose ranks report values and return a result,
- the CPU time of an empty cell in seconds,
- the memory of the process before the start, and the additional memory for the ranks, in MB.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

import pandas as pd
import psutil
from farandole.driver.cluster import Cluster

from bench.site import quiet

if TYPE_CHECKING:
    from collections.abc import Callable

CELLS = 9
NOISY_CELLS = 3
NOISY = 'print(f"I am rank {rank}")\nprint("and so are we all")'
TRAINING = "for step in range(10):\n    report(loss=1 / (step + 1))\nresult(rank)"
MEGABYTE = 1e6


def main() -> None:
    """Start a cluster, measure the driver, stop the cluster and print the results."""
    workers, ranks = int(sys.argv[1]), int(sys.argv[2])
    process = psutil.Process()
    # Load the driver's modules and pandas before the first measurement of memory. The later growth then comes only from
    # the ranks and their reports.
    Cluster.running()
    pd.DataFrame({"loss": [1.0]})
    before = process.memory_info().rss
    began = time.perf_counter()
    cluster = Cluster.start(workers=workers, ranks=ranks, backend="none", timeout=600, progress=quiet)
    found = {"start": time.perf_counter() - began}
    try:
        cluster.run("pass")
        cpu = time.process_time()
        found["cell"] = median(seconds(lambda: cluster.run("pass")) for _ in range(CELLS))
        found["cell_cpu"] = (time.process_time() - cpu) / CELLS
        found["noisy_cell"] = median(seconds(lambda: cluster.run(NOISY)) for _ in range(NOISY_CELLS))
        found["training"] = seconds(lambda: check(cluster, workers * ranks))
        found["megabytes"] = (process.memory_info().rss - before) / MEGABYTE
        found["megabytes_before"] = before / MEGABYTE
    finally:
        found["stop"] = seconds(cluster.stop)
    print(json.dumps(found))


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def check(cluster: Cluster, size: int) -> None:
    """Train on all ranks, and check that no result and no report is missing."""
    run = cluster.train(TRAINING)
    assert run.results == {rank: rank for rank in range(size)}
    assert len(run.dataframe()) == 10 * size


if __name__ == "__main__":
    main()
