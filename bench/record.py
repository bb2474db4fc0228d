"""What measurements give: numbers with their runs, ratios of pairs, the slope of a growth; pure functions."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Record:
    """A number, its unit, the runs that it is the median of, and the value that it must not pass, if any."""

    name: str
    value: float
    unit: str
    runs: tuple[float, ...]
    limit: str = ""
    note: str = ""

    @property
    def kept(self) -> bool:
        """True where the value keeps the limit, or there is none."""
        if not self.limit:
            return True
        sign, bound = self.limit.split()
        return self.value <= float(bound) if sign == "<=" else self.value >= float(bound)


def median_of(name: str, runs: Iterable[float], unit: str, *, limit: str = "", note: str = "") -> Record:
    """Return the median of runs as a record."""
    kept = tuple(runs)
    return Record(name=name, value=median(kept), unit=unit, runs=kept, limit=limit, note=note)


def ratio_of_pairs(name: str, pairs: Sequence[tuple[float, float]], *, limit: str = "", note: str = "") -> Record:
    """Return the median of (ours / theirs) over paired runs; the note says the medians of both sides."""
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    sides = f"{ours:.4g} : {theirs:.4g}{', ' if note else ''}{note}"
    return median_of(name, (mine / other for mine, other in pairs), "ours / theirs", limit=limit, note=sides)


def growth_exponent(times: Mapping[int, float]) -> float:
    """Return the slope of a line through log(time) over log(size): 0 is constant, 1 linear."""
    slope, _ = linear_regression([math.log(size) for size in times], [math.log(time) for time in times.values()])
    return slope


def growth_table(title: str, rows: Mapping[str, Mapping[int, float]]) -> str:
    """Return how quantities grow with a size, a column for each size and, last, the power of it that fits."""
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
    """Return the records as aligned lines."""
    rows = [("name", "value", "unit", "runs", "wanted", "")]
    for record in records:
        verdict = record.limit and f"{record.limit} {'ok' if record.kept else 'MISSED'}"
        rows.append(
            (record.name, f"{record.value:.4g}", record.unit, str(len(record.runs)), verdict or "", record.note)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]).rstrip()
        for row in rows
    )


def save(records: Iterable[Record], path: Path) -> None:
    """Write records into a file of results; what it holds under other names stays."""
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for record in records:
        results[record.name] = {"value": record.value, "unit": record.unit, "runs": list(record.runs)}
    path.write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n", encoding="utf-8")
