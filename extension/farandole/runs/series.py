"""Keeps the metrics of a run as a full table for each rank and as condensed series for charts.

A table is stored in flat arrays with 8 bytes per number. Each series also has an *envelope* of at most `POINTS` buckets
with the mean, minimum and maximum of neighbouring points. When there are too many buckets, pairs of them are merged.
The cost of adding a point or drawing a series therefore does not grow with the length of the run.
"""

from __future__ import annotations

import math
from array import array
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from farandole.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from farandole.protocol import Report

POINTS = 300
"""Maximum number of points in the line of one rank."""

LARGEST_WHOLE = 2.0**63 - 1024
"""Largest float that fits into a 64-bit integer.

Steps are clipped to this value, because the largest steps that a report can have would be rounded up to a larger float.
"""


class Axis:
    """Places the reports of a series on the x axis: by step, by epoch if there is no step, or in order of arrival."""

    def __init__(self) -> None:
        self.label = "report"
        self._last = -1
        self._offset = 0
        self._epoch: int | None = None

    def place(self, step: int | None, epoch: int | None) -> int:
        """Return the x value of a report. If steps restart in each epoch, x values continue from the previous epoch."""
        if step is not None:
            self.label = "step"
            x = self._continued(step, epoch)
        elif epoch is not None:
            self.label, x = "epoch", epoch
        else:
            x = self._last + 1
        self._last, self._epoch = x, epoch
        return x

    def _continued(self, step: int, epoch: int | None) -> int:
        new_epoch = epoch is not None and self._epoch is not None and epoch > self._epoch
        if new_epoch and step + self._offset <= self._last:
            self._offset = self._last + 1 - step if step <= 0 else self._last
        return step + self._offset


@dataclass(slots=True)
class Bucket:
    """The count, sum, minimum and maximum of the finite values at neighbouring x values.

    ``time`` is the sum of the times of all reports, and ``epoch`` is the last epoch, or minus infinity without epochs.
    """

    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    bad: int = 0
    """How many values were NaN or infinite."""
    time: float = 0.0
    epoch: float = -math.inf

    def add(self, value: float, time: float, epoch: int | None) -> None:
        """Add a value to the statistics, with the time and the epoch of its report."""
        self.time += time
        self.epoch = self.epoch if epoch is None else max(self.epoch, epoch)
        if not math.isfinite(value):
            self.bad += 1
            return
        self.count += 1
        self.total += value
        self.low = min(self.low, value)
        self.high = max(self.high, value)

    def join(self, other: Bucket) -> None:
        """Add the statistics of another bucket to this one."""
        self.count += other.count
        self.total += other.total
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        self.bad += other.bad
        self.time += other.time
        self.epoch = max(self.epoch, other.epoch)

    @property
    def mean(self) -> float:
        """Mean of the finite values, or NaN if there are none."""
        return self.total / self.count if self.count else math.nan

    @property
    def mean_time(self) -> float:
        """Mean time of all reports, in seconds since the epoch."""
        return self.time / (self.count + self.bad)


class Envelope:
    """A condensed series of at most `POINTS` buckets.

    The width of a bucket in x is a power of two, so that the buckets of all ranks align.
    """

    def __init__(self, limit: int = POINTS) -> None:
        self.width = 1
        self.buckets: dict[int, Bucket] = {}
        self._limit = limit

    def add(self, x: int, value: float, time: float, epoch: int | None) -> None:
        """Add a point, and double the width of the buckets if there are too many."""
        bucket = self.buckets.get(x // self.width)
        if bucket is None:
            bucket = self.buckets[x // self.width] = Bucket()
        bucket.add(value, time, epoch)
        while len(self.buckets) > self._limit:
            self.buckets = self.at(self.width * 2)
            self.width *= 2

    def at(self, width: int) -> dict[int, Bucket]:
        """Return the buckets merged into buckets of ``width``, which must be a multiple of the current width."""
        coarse: dict[int, Bucket] = {}
        for key, bucket in self.buckets.items():
            coarse.setdefault(key * self.width // width, Bucket()).join(bucket)
        return coarse


@dataclass(frozen=True, kw_only=True)
class Point:
    """One point of a chart.

    - The statistics are NaN if no value is finite. ``bad`` counts NaN and infinite values.
    - ``time`` is the mean time of the reports, in seconds since the epoch.
    - ``epoch`` is the last epoch in the reports, or minus infinity if they have none.
    """

    x: float
    mean: float
    low: float
    high: float
    time: float
    epoch: float
    bad: int = 0


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series for a chart, with the mean, minimum and maximum over the ranks, and optionally a line for each rank."""

    name: str
    x_label: str
    points: list[Point]
    ranks: dict[int, list[Point]]
    first: float
    """Mean over the ranks of each rank's first value."""
    last_of: dict[int, float]
    """Last value of each rank, by rank."""

    @property
    def last(self) -> float:
        """Mean over the ranks of each rank's last value."""
        return _mean(list(self.last_of.values()))

    @property
    def bad(self) -> int:
        """How many values are NaN or infinite."""
        return sum(point.bad for point in self.points)

    @property
    def low(self) -> float:
        """Smallest finite value, or NaN if there is none."""
        return min((p.low for p in self.points if math.isfinite(p.mean)), default=math.nan)

    @property
    def high(self) -> float:
        """Largest finite value, or NaN if there is none."""
        return max((p.high for p in self.points if math.isfinite(p.mean)), default=math.nan)


@dataclass(slots=True)
class Column:
    """One series of one rank, with all values, the row of each value in the table, and the envelope."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    axis: Axis = field(default_factory=Axis)
    envelope: Envelope = field(default_factory=Envelope)


class RankTable:
    """All reports of one rank, stored column by column."""

    def __init__(self) -> None:
        self.time: array[float] = array("d")
        self.step: array[float] = array("d")
        self.epoch: array[float] = array("d")
        self.columns: dict[str, Column] = {}

    def add(self, report: Report) -> None:
        """Append one report."""
        row = len(self.time)
        self.time.append(report.time)
        self.step.append(math.nan if report.step is None else report.step)
        self.epoch.append(math.nan if report.epoch is None else report.epoch)
        for name, value in report.values.items():
            column = self.columns.setdefault(name, Column())
            column.rows.append(row)
            column.values.append(value)
            x = column.axis.place(report.step, report.epoch)
            column.envelope.add(x, value, report.time, report.epoch)

    def frame(self, rank: int) -> pd.DataFrame:
        """Return the reports as a data frame with the columns rank, time, step, epoch and one for each series."""
        with text_of_any_kind():
            return self._frame(rank)

    def _frame(self, rank: int) -> pd.DataFrame:
        import pandas as pd

        frame = pd.DataFrame({"rank": rank, "time": list(self.time)})
        for name, whole in (("step", self.step), ("epoch", self.epoch)):
            steps = pd.Series(list(whole), dtype="float64").clip(-LARGEST_WHOLE, LARGEST_WHOLE)
            frame[name] = steps.astype("Int64")
        for name, column in self.columns.items():
            frame[name] = pd.Series(list(column.values), index=list(column.rows), dtype="float64")
        return frame


@contextmanager
def text_of_any_kind() -> Iterator[None]:
    """Allow any Python text in new data frames of pandas.

    If PyArrow is installed, pandas stores text in Arrow arrays, which reject surrogates. Names of series may contain
    surrogates. Raises UsageError if pandas is missing, which only data frames need.
    """
    if find_spec("pandas") is None:
        raise UsageError("data frames need pandas, which the notebook's environment lacks; run `%pip install pandas`")
    import pandas as pd

    with pd.option_context("mode.string_storage", "python"):
        yield


def drawn(tables: Mapping[int, RankTable], *, by_rank: bool = True) -> list[Series]:
    """Return the series in these tables, in order of first appearance. ``by_rank`` adds a line for each rank."""
    names = dict.fromkeys(name for table in tables.values() for name in table.columns)
    return [
        _series(name, {rank: table.columns[name] for rank, table in tables.items() if name in table.columns}, by_rank)
        for name in names
    ]


def _series(name: str, columns: Mapping[int, Column], by_rank: bool) -> Series:
    width = max(column.envelope.width for column in columns.values())
    envelopes = {rank: column.envelope for rank, column in columns.items()}
    lines = {rank: one.buckets if one.width == width else one.at(width) for rank, one in envelopes.items()}
    return Series(
        name=name,
        x_label=next(iter(columns.values())).axis.label,
        points=_over_ranks(lines, width),
        ranks={rank: _line(line, width) for rank, line in lines.items()} if by_rank else {},
        first=_mean([column.values[0] for column in columns.values()]),
        last_of={rank: column.values[-1] for rank, column in columns.items()},
    )


def _line(line: Mapping[int, Bucket], width: int) -> list[Point]:
    return [_point(key, width, [line[key]]) for key in sorted(line)]


def _over_ranks(lines: Mapping[int, Mapping[int, Bucket]], width: int) -> list[Point]:
    keys = sorted({key for line in lines.values() for key in line})
    return [_point(key, width, [line[key] for line in lines.values() if key in line]) for key in keys]


def _point(key: int, width: int, buckets: list[Bucket]) -> Point:
    finite = [bucket for bucket in buckets if bucket.count]
    return Point(
        x=key * width + (width - 1) / 2,
        mean=_mean([bucket.mean for bucket in finite]),
        low=min((bucket.low for bucket in finite), default=math.nan),
        high=max((bucket.high for bucket in finite), default=math.nan),
        time=_mean([bucket.mean_time for bucket in buckets]),
        epoch=max(bucket.epoch for bucket in buckets),
        bad=sum(bucket.bad for bucket in buckets),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
