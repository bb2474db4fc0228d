"""The table and the verdict that are printed at the end of a soak test."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.soak import Hit, Report

HEAD = ("fault", "count", "median s", "worst s", "all again s", "steps lost")


def summary(report: Report) -> str:
    """Return a table of the costs of each kind of fault, followed by the runs that ended early and the problems."""
    kinds = list(dict.fromkeys(hit.fault.kind for hit in report.hits))
    rows = [HEAD, *(_row(kind, [hit for hit in report.hits if hit.fault.kind == kind]) for kind in sorted(kinds))]
    if len(kinds) > 1:
        rows.append(_row("all", report.hits))
    return "\n".join([*("".join(_cells(row)).rstrip() for row in rows), "", *_verdict(report)])


def _row(kind: str, hits: Sequence[Hit]) -> tuple[str, ...]:
    seconds = [hit.seconds for hit in hits if hit.seconds is not None]
    whole = [hit.whole for hit in hits if hit.whole is not None]
    lost = max(hit.lost for hit in hits)
    if not seconds:
        return kind, str(len(hits)), "-", "-", "-", "-"
    return (
        kind,
        str(len(hits)),
        f"{statistics.median(seconds):.1f}",
        f"{max(seconds):.1f}",
        f"{statistics.median(whole):.1f}",
        str(lost),
    )


def _cells(row: tuple[str, ...]) -> Iterator[str]:
    yield f"{row[0]:<10}"
    yield from (f"{cell:>13}" for cell in row[1:])


def _verdict(report: Report) -> Iterator[str]:
    yield f"{len(report.hits)} faults, {len(report.given_up)} runs given up, {len(report.problems)} problems"
    yield from (f"given up: {text}" for text in report.given_up)
    yield from (f"PROBLEM {text}" for text in report.problems)
