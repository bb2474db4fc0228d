"""Compare the duration of an empty cell on N workers, through the hub's proxy, with ``%%px --block`` on N engines.

Each worker has one rank. Both clusters run at the same time, and their cells alternate. The pause between two cells
prevents one cluster's remaining messages, such as idle messages, from slowing down the other cluster's next cell.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from bench.notebook import farandole, make_shell, px, seconds
from bench.record import Record, ratio_of_pairs
from bench.site import bench_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

SIZES = (1, 2, 4, 8)
LIMITS = {2: "<= 0.9", 4: "<= 0.9"}
CELLS = 50
WARM_UP = 10
QUIET_SECONDS = 0.03


def measure(repeats: int) -> Iterator[Record]:
    """Yield the record fanout_ratio_<size> for each size in `SIZES`."""
    shell = make_shell()
    with bench_hub():
        for size in SIZES:
            with farandole(shell, f"--workers {size} --backend none"), px(size):
                pairs = [in_turns(shell, CELLS if run else CELLS + WARM_UP) for run in range(repeats)]
            yield ratio_of_pairs(f"fanout_ratio_{size}", pairs, limit=LIMITS.get(size, ""), note="ms a cell")


def in_turns(shell: InteractiveShell, cells: int) -> tuple[float, float]:
    """Run cells of Farandole and ipyparallel alternately; return the median duration of each side in milliseconds."""
    ours, theirs = [], []
    for _ in range(cells):
        time.sleep(QUIET_SECONDS)
        ours.append(seconds(shell, "distributed", "", "pass"))
        time.sleep(QUIET_SECONDS)
        theirs.append(seconds(shell, "px", "--block", "pass"))
    return 1000 * median(ours), 1000 * median(theirs)
