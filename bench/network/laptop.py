"""Measures a cell on four ranks that a laptop leads, at a round trip of 50 ms to the hub."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench.record import Record, median_of
from bench.site import bench_hub
from tests.far_laptop import ROUND_TRIP_SECONDS, FarLaptop

if TYPE_CHECKING:
    from collections.abc import Iterator

RANKS = 4
CELLS = 20
ADDED_MILLISECONDS = 20
LEAD = f"""
import json, sys, time
from farandole import Cluster

with Cluster.start({RANKS}, name="far", profile="bench", backend="none", hub_url=sys.argv[1], progress=len) as cluster:
    cluster.run("pass")
    for _ in range(int(sys.argv[2])):
        times = []
        for _ in range({CELLS}):
            begun = time.perf_counter()
            cluster.run("pass")
            times.append(time.perf_counter() - begun)
        print(json.dumps(times), flush=True)
"""


def measure(repeats: int) -> Iterator[Record]:
    """Yield the time of a cell beyond one round trip."""
    with (
        tempfile.TemporaryDirectory(prefix="farandole-laptop-") as folder,
        bench_hub() as hub,
        FarLaptop(hub.url, Path(folder)) as laptop,
    ):
        laptop.log_in(os.environ["JUPYTERHUB_API_TOKEN"])
        leading = laptop.python("-c", LEAD, hub.url, str(repeats), stdout=subprocess.PIPE, text=True)
        said, _ = leading.communicate(timeout=300)
    runs = [1000 * (median(json.loads(line)) - ROUND_TRIP_SECONDS) for line in said.splitlines()]
    yield median_of(
        "laptop_cell_milliseconds_beyond_round_trip", runs, "ms", limit=f"<= {ADDED_MILLISECONDS}", note="4 ranks"
    )
