"""Compare the first page of the table of 5,000 runs with that of 50 runs. Both are read before the measurement.

A page has 50 rows in both tables, but the order and the names of its columns come from all runs.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from farandole.server.panel.charts import Charts
from farandole.server.panel.runs import Filter, RunIndex
from farandole.server.panel.table.rows import MOST_ROWS
from farandole.server.panel.table.table import Table

from bench.record import Record, ratio_of_pairs
from tests.strange import write_run

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY, FEW = 5_000, 50
PAGES = 10


def measure(repeats: int) -> Iterator[Record]:
    """Yield the record table_page_ratio."""
    with tempfile.TemporaryDirectory(prefix="farandole-table-") as folder:
        many, few = (_table(Path(folder) / str(size), size) for size in (MANY, FEW))
        pairs = [(_page_milliseconds(many), _page_milliseconds(few)) for _ in range(repeats)]
    limit = f"<= {MANY / FEW:g}"
    yield ratio_of_pairs("table_page_ratio", pairs, limit=limit, note=f"ms for a page of {MANY:,} : {FEW} runs")


def _table(folder: Path, size: int) -> Table:
    """Return the table of ``size`` runs in a new folder, after it has read all of them."""
    for number in range(size):
        write_run(folder, f"20260102-{number:06d}-abcd", config={"lr": number / size, "batch": 64})
    table = Table(RunIndex(folder, folder.parent), Charts())
    for offset in range(0, size, MOST_ROWS):
        table.page(active=(), wanted=Filter(), offset=offset, limit=MOST_ROWS)
    return table


def _page_milliseconds(table: Table) -> float:
    """Return the median time of a page that is sorted by a hyper-parameter, as after a click on its header."""
    times = []
    for _ in range(PAGES):
        began = time.perf_counter()
        table.page(active=(), wanted=Filter(), sort="config.lr", limit=FEW)
        times.append(1000 * (time.perf_counter() - began))
    return median(times)
