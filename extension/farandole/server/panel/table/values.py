"""Finds the last, lowest and highest values of the series of runs."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from farandole.protocol import is_number
from farandole.runs.model import RunInfo
from farandole.server.panel import wire
from farandole.server.panel.charts import Charts, Version, sample
from farandole.server.panel.views import read_view
from farandole.server.panel.wire_runs import ReportedValues

MOST_SERIES = 100
"""Maximum number of series of a run in the table."""
PARTS = "last", "lowest", "highest"
Packed: TypeAlias = tuple[Version, tuple[str, ...], Sequence[float]]
"""The version of a run's files, the names of its series, and three numbers for each name. NaN means no value."""


class SeriesValues:
    """Reads the values from the stored views of runs, or from samples of their reports if a run has no view.

    A run is read again only if its files have changed. Any thread may use this class. The values of a run with 20
    series take about one kilobyte of memory.
    """

    def __init__(self, charts: Charts) -> None:
        self._charts = charts
        self._known: dict[str, Packed] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """The names of the series, which most runs share."""
        self._reading = threading.Lock()

    def of(self, info: RunInfo) -> dict[str, ReportedValues]:
        """Return the values of a run by the name of the series."""
        _, names, numbers = self._current(info)
        values = iter([None if math.isnan(number) else number for number in numbers])
        return {name: {"last": next(values), "lowest": next(values), "highest": next(values)} for name in names}

    def value(self, info: RunInfo, name: str, which: str) -> float | None:
        """Return one value of a run: the ``last``, ``lowest`` or ``highest`` of a series; None if there is none."""
        _, names, numbers = self._current(info)
        if name not in names:
            return None
        number = numbers[3 * names.index(name) + PARTS.index(which)]
        return None if math.isnan(number) else number

    def names(self, infos: Iterable[RunInfo]) -> set[str]:
        """Return the names of the series of all runs that have already been read."""
        found = {known[1] for info in infos if (known := self._known.get(info.id)) is not None}
        return {name for names in found for name in names}

    def read(self, infos: Iterable[RunInfo]) -> None:
        """Read the values of runs in advance."""
        for info in infos:
            self._current(info)

    def forget(self, run: str) -> None:
        """Drop the values of a deleted run."""
        self._known.pop(run, None)

    def _current(self, info: RunInfo) -> Packed:
        version = self._charts.version(info)
        if (known := self._known.get(info.id)) is not None and known[0] == version:
            return known
        # Threads that need the same run wait for this lock, so that its files are read only once.
        with self._reading:
            if (known := self._known.get(info.id)) is None or known[0] != version:
                known = self._known[info.id] = self._read(info, version)
            return known

    def _read(self, info: RunInfo, version: Version) -> Packed:
        series = _series(info)[:MOST_SERIES]
        names = tuple(one["name"] for one in series)
        numbers = array("d", (number for one in series for number in _numbers(one)))
        return version, self._names.setdefault(names, names), numbers


def _series(info: RunInfo) -> Sequence[wire.Series]:
    try:
        return read_view(info.folder)["series"]
    except (OSError, ValueError):
        return sample(info).view["series"]


def _numbers(series: wire.Series) -> tuple[float, float, float]:
    means = [value for value in series["mean"] if is_number(value)]
    last = math.nan if series["last"] is None else series["last"]
    return last, min(means, default=math.nan), max(means, default=math.nan)
