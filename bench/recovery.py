"""How soon an elastic run of three ranks goes on when one is killed, on either backend, and how many steps are lost."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.driver.cluster import Cluster
from farandole.driver.elastic import Elastic

from bench.record import Record, median_of
from bench.site import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = Path(__file__).parent / "loops" / "recovery_step.py"
RANKS = 3


def measure(repeats: int) -> Iterator[Record]:
    """Yield recovery_seconds_median, recovery_seconds_worst and steps_lost_max over ranks and backends in turn."""
    runs: dict[str, list[tuple[float, int]]] = {}
    for backend in ("horovod", "torch"):
        with Cluster.start(local=True, ranks=RANKS, backend=backend, progress=quiet) as cluster:
            runs[backend] = [recovery(cluster, turn % RANKS) for turn in range(max(repeats, RANKS))]
    times = [seconds for found in runs.values() for seconds, _ in found]
    note = "; ".join(f"{name} {' '.join(f'{seconds:.2f}' for seconds, _ in found)}" for name, found in runs.items())
    yield median_of("recovery_seconds_median", times, "s", limit="<= 10", note=note)
    yield median_of("recovery_seconds_worst", [max(times)], "s", limit="<= 25")
    lost = max(steps for found in runs.values() for _, steps in found)
    yield median_of("steps_lost_max", [lost], "steps", limit="<= 1", note="a commit each step")


def recovery(cluster: Cluster, rank: int) -> tuple[float, int]:
    """Return the longest time without a step of any rank, in seconds, and how many steps were done again."""
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        code = f"KILL, MARK = {rank}, {str(Path(folder) / 'killed')!r}\n{LOOP.read_text()}"
        frame = cluster.train(code, elastic=Elastic()).dataframe().sort_values("time")
    steps = frame[frame["rank"] == 0]["step"].astype(int).to_list()
    return float(frame["time"].diff().max()), max(before - after + 1 for before, after in pairwise(steps))
