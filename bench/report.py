"""Measure the overhead of `fd.report` in a training loop, and how many reports and prints arrive or are lost."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from unittest.mock import patch

from farandole.driver.cluster import Cluster
from farandole.runs import writer
from farandole.runs.folder import read_lines
from farandole.runs.logs import OutputTimes
from farandole.runs.positions import rank_files

from bench.record import Record, median_of, ratio_of_pairs
from bench.site import bench_hub, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from farandole.runs.run import Run

LOOPS = Path(__file__).parent / "loops"
REPORTS = 20_000
PRINTS = 5_000

REPORTING = f"""
import farandole as fd
for step in range({REPORTS}):
    fd.report(step=step, loss=1 / (step + 1))
"""
PRINTING = f"""
for number in range({PRINTS}):
    print("line", number)
"""


def measure(repeats: int) -> Iterator[Record]:
    """Yield the cost of a report on one rank, then the losses and rates of reports and prints on two ranks.

    The last record compares the rate of prints with that of a driver which does not record the times of output.
    """
    start = Cluster.start
    with bench_hub():
        with start(workers=1, profile="bench", backend="none", progress=quiet) as cluster:
            yield from cost(cluster, repeats)
        with start(workers=2, profile="bench", backend="none", progress=quiet) as cluster:
            yield from arrivals(
                "reports", [send(cluster, REPORTING, REPORTS * 2, _reports_kept) for _ in range(repeats)]
            )
            pairs = [(_send_prints(cluster), _send_prints_without_times(cluster)) for _ in range(repeats)]
    yield from arrivals("prints", [ours for ours, _ in pairs])
    rates = [(ours, theirs) for (_, ours), (_, theirs) in pairs]
    yield ratio_of_pairs("print_times_ratio", rates, limit=">= 0.9", note="prints / s, with and without times")


def cost(cluster: Cluster, repeats: int) -> Iterator[Record]:
    """Yield the records report_overhead_percent and report_microseconds."""
    runs = [cluster.train(_loop("report_step.py")).result for _ in range(repeats)]
    note = f"200 a second, steps of {median(run['step_ms'] for run in runs):.1f} ms"
    yield median_of(
        "report_overhead_percent", (run["overhead_percent"] for run in runs), "%", limit="<= 2.0", note=note
    )
    calls = [cluster.train(_loop("report_call.py")).result["microseconds"] for _ in range(repeats)]
    yield median_of("report_microseconds", calls, "us a call")


def send(cluster: Cluster, code: str, sent: int, kept: Callable[[Run], int]) -> tuple[float, float]:
    """Run a cell that sends ``sent`` reports or lines; return how many are lost, and how many are sent per second."""
    began = time.perf_counter()
    run = cluster.train(code)
    seconds = time.perf_counter() - began
    return float(sent - kept(run)), sent / seconds


def arrivals(what: str, runs: list[tuple[float, float]]) -> Iterator[Record]:
    """Yield the records <what>_lost (from the worst run) and <what>_per_second (the median of all runs)."""
    lost, rates = zip(*runs, strict=True)
    yield Record(name=f"{what}_lost", value=max(lost), unit=what, runs=lost, limit="<= 0", note="worst run")
    yield median_of(f"{what}_per_second", rates, f"{what} / s")


class NoTimes(OutputTimes):
    """Records no times of output."""

    def add(self, log: str, size: int, printed: float) -> None:
        """Do nothing."""

    def drop(self, log: str, size: int) -> None:
        """Do nothing."""


def _send_prints(cluster: Cluster) -> tuple[float, float]:
    return send(cluster, PRINTING, PRINTS * 2, _prints_kept)


def _send_prints_without_times(cluster: Cluster) -> tuple[float, float]:
    with patch.object(writer, "OutputTimes", NoTimes):
        return _send_prints(cluster)


def _reports_kept(run: Run) -> int:
    """Return the number of distinct reports on disk, so that duplicates do not hide losses."""
    names = [name for _, name in rank_files(run.folder, "metrics", ".jsonl")]
    return sum(len({record["step"] for record in read_lines(run.folder, name)}) for name in names)


def _prints_kept(run: Run) -> int:
    files = sorted((run.folder / "logs").glob("rank-*.log"))
    wanted = {f"line {number}" for number in range(PRINTS)}
    return sum(len(wanted.intersection(file.read_text().splitlines())) for file in files)


def _loop(name: str) -> str:
    return (LOOPS / name).read_text()
