"""The results of measurements: medians, ratios of paired runs and growth exponents, and their tables."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import TYPE_CHECKING

from farandole.driver.table import aligned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Record:
    """A measured quantity with the values of its runs, a summary of these values, and an optional limit."""

    name: str
    value: float
    unit: str
    runs: tuple[float, ...]
    limit: str = ""
    note: str = ""

    @property
    def kept(self) -> bool:
        """Whether the value is within its limit; true if there is no limit."""
        if not self.limit:
            return True
        sign, bound = self.limit.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)


def median_of(name: str, runs: Iterable[float], unit: str, *, limit: str = "", note: str = "") -> Record:
    """Return a record whose value is the median of ``runs``."""
    kept = tuple(runs)
    return Record(name=name, value=median(kept), unit=unit, runs=kept, limit=limit, note=note)


def ratio_of_pairs(name: str, pairs: Sequence[tuple[float, float]], *, limit: str = "", note: str = "") -> Record:
    """Return a record with the median ratio of paired runs (ours / theirs); its note shows the median of each side."""
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    sides = f"{ours:.4g} : {theirs:.4g}{', ' if note else ''}{note}"
    return median_of(name, (mine / other for mine, other in pairs), "ours / theirs", limit=limit, note=sides)


def growth_exponent(times: Mapping[int, float]) -> float:
    """Return the slope of log(time) over log(size), which is 0 for constant and 1 for linear growth."""
    slope, _ = linear_regression([math.log(size) for size in times], [math.log(time) for time in times.values()])
    return slope


def growth_table(title: str, rows: Mapping[str, Mapping[int, float]]) -> str:
    """Return a table with a row for each quantity, a column for each size and a last column for the growth exponent."""
    sizes = sorted({size for row in rows.values() for size in row})
    cells = [[title, *(f"{size:,}" for size in sizes), "growth"]]
    for name, row in rows.items():
        values = [f"{row[size]:,.4g}" if size in row else "" for size in sizes]
        cells.append([name, *values, f"n^{growth_exponent(row):.2f}"])
    widths = [max(len(line[column]) for line in cells) for column in range(len(sizes) + 2)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in cells
    )


def table(records: Iterable[Record]) -> str:
    """Return the records as a table with aligned columns."""
    rows = [("name", "value", "unit", "runs", "limit", "")]
    for record in records:
        verdict = record.limit and f"{record.limit} {'ok' if record.kept else 'MISSED'}"
        rows.append(
            (record.name, f"{record.value:.4g}", record.unit, str(len(record.runs)), verdict or "", record.note)
        )
    return "\n".join(aligned(rows))


def save(records: Iterable[Record], path: Path) -> None:
    """Write records into a file of results; results with other names stay in the file."""
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for record in records:
        note = {"note": record.note} if record.note else {}
        results[record.name] = {"value": record.value, "unit": record.unit, "runs": list(record.runs), **note}
    path.write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n", encoding="utf-8")
