"""``make bench-data``: the same job on Farandole, PySpark, Ray Data and Dask.

`on_farandole`, `on_spark`, `on_ray` and `on_dask` are scripts, one for each engine. All of them use `rows`, which
computes rows in pandas, and `training`, which has the models. `measure` runs the scripts and compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.record import Record


def measure(repeats: int) -> Iterator[Record]:
    """Yield the records of the bench."""
    # The scripts of PySpark and Ray import this package, too, in an environment without Farandole.
    from bench.data.measure import measure as measured

    return measured(repeats)
