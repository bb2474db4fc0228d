"""Kill one of the three ranks of an elastic run, and measure the recovery time and the lost steps on both backends."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.driver.cluster import Cluster
from farandole.driver.options import Elastic

from bench.record import Record, median_of
from bench.site import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOP = Path(__file__).parent / "loops" / "recovery_step.py"
RANKS = 3
BACKENDS = ("horovod", "torch")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model with ``layers`` float32 layers of ``width`` x ``width`` parameters, committed every ``commit`` steps."""

    name: str
    width: int
    layers: int
    commit: int


CASES = (
    Case(name="small", width=64, layers=1, commit=1),
    Case(name="100 MB", width=2236, layers=5, commit=10),
)


def measure(repeats: int) -> Iterator[Record]:
    """Yield the median and the maximum of the recovery times, and the maximum of the lost steps for each model."""
    runs: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for backend in BACKENDS:
        with Cluster.start(local=True, ranks=RANKS, backend=backend, progress=quiet) as cluster:
            for case in CASES:
                turns = range(max(repeats, RANKS))
                runs[case.name, backend] = [recovery(cluster, case, turn % RANKS) for turn in turns]
    times = [seconds for found in runs.values() for seconds, _ in found]
    note = "; ".join(
        f"{model} {backend} {' '.join(f'{seconds:.2f}' for seconds, _ in found)}"
        for (model, backend), found in runs.items()
    )
    yield median_of("recovery_seconds_median", times, "s", limit="<= 10", note=note)
    yield median_of("recovery_seconds_worst", [max(times)], "s", limit="<= 25")
    small, large = CASES
    for name, case in (("steps_lost_small_max", small), ("steps_lost_max", large)):
        lost = max(steps for backend in BACKENDS for _, steps in runs[case.name, backend])
        note = f"{case.name}, a commit every {case.commit} steps"
        yield median_of(name, [lost], "steps", limit=f"<= {case.commit}", note=note)


def recovery(cluster: Cluster, case: Case, rank: int) -> tuple[float, int]:
    """Return the longest time in seconds in which no rank reported a step, and the number of repeated steps."""
    with tempfile.TemporaryDirectory(prefix="farandole-bench-") as folder:
        values: dict[str, int | str] = {"KILL": rank, "MARK": str(Path(folder) / "killed")}
        values |= {"WIDTH": case.width, "LAYERS": case.layers, "COMMIT_STEPS": case.commit}
        head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        frame = cluster.train(head + LOOP.read_text(), elastic=Elastic()).dataframe().sort_values("time")
        if not Path(folder, "killed").exists():
            raise RuntimeError(f"rank {rank} was never killed")
    steps = frame[frame["rank"] == 0]["step"].astype(int).to_list()
    return float(frame["time"].diff().max()), max(before - after + 1 for before, after in pairwise(steps))
