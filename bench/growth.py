"""Measure how an empty cell's duration grows from 1 to 64 ranks, on 8 workers with 8 ranks each."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.notebook import farandole, make_shell, seconds
from bench.record import Record, growth_exponent, median_of
from bench.site import bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (1, 2, 4, 8, 16, 32, 64)
CELLS = 20


def measure(repeats: int) -> Iterator[Record]:
    """Yield the record fanout_milliseconds_<size> for each size in `SIZES`, and fanout_growth_exponent."""
    shell = make_shell()
    with bench_hub(), farandole(shell, "--workers 8 --ranks 8 --backend none"):
        for size in SIZES:
            seconds(shell, "distributed", ranks(size), "pass")
        runs = [
            {size: median(seconds(shell, "distributed", ranks(size), "pass") for _ in range(CELLS)) for size in SIZES}
            for _ in range(repeats)
        ]
    for size in SIZES:
        yield median_of(f"fanout_milliseconds_{size}", (1000 * run[size] for run in runs), "ms")
    yield median_of(
        "fanout_growth_exponent", (growth_exponent(run) for run in runs), "slope of log time", note="1 to 64 ranks"
    )


def ranks(size: int) -> str:
    """Return the option that selects the first ``size`` ranks."""
    return f"--ranks 0-{size - 1}"
