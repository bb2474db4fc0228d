"""Finds the last, lowest and highest values of the series of runs."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from farandole.runs.model import RunInfo
from farandole.server.panel import wire
from farandole.server.panel.charts import Charts, sample
from farandole.server.panel.table.cache import Cache
from farandole.server.panel.views import read_view

MOST_SERIES = 100
"""Maximum number of series of a run in the table."""
Part: TypeAlias = Literal["last", "lowest", "highest"]
PARTS: tuple[Part, ...] = ("last", "lowest", "highest")
Packed: TypeAlias = tuple[tuple[str, ...], Sequence[float]]
"""The names of the series of a run, and three numbers for each name. NaN means no value."""


class SeriesValues(Cache[Packed]):
    """Reads the values from the stored views of runs, or from samples of their reports if a run has no view.

    The values of a run with 20 series take about one kilobyte of memory.
    """

    def __init__(self, charts: Charts) -> None:
        super().__init__(charts.version, self._packed)
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """The names of the series, which most runs share."""

    def value(self, info: RunInfo, name: str, which: str) -> float | None:
        """Return a known value of a run: the ``last``, ``lowest`` or ``highest`` of a series; None if there is none."""
        names, numbers = self.get(info) or ((), ())
        if name not in names:
            return None
        number = numbers[3 * names.index(name) + PARTS.index(which)]
        return None if math.isnan(number) else number

    def names(self, infos: Iterable[RunInfo]) -> Counter[str]:
        """Return the names of the series of all runs that have already been read, with the number of these runs."""
        found = Counter(known[0] for info in infos if (known := self.get(info)) is not None)
        counts: Counter[str] = Counter()
        for names, runs in found.items():
            counts.update(dict.fromkeys(names, runs))
        return counts

    def _packed(self, info: RunInfo) -> Packed:
        series = _series(info)[:MOST_SERIES]
        names = tuple(one["name"] for one in series)
        numbers = array("d", (_number(one[part]) for one in series for part in PARTS))
        return self._names.setdefault(names, names), numbers


def _series(info: RunInfo) -> Sequence[wire.Series]:
    try:
        return read_view(info.folder)["series"]
    except (OSError, ValueError):
        return sample(info).view["series"]


def _number(value: float | None) -> float:
    return math.nan if value is None else value
