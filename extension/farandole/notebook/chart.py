"""Draws the static view of a run: an SVG chart and a table, which every viewer of a saved notebook can show.

The colours have medium brightness and the background is transparent, so that the chart is readable in light and dark
themes.
"""

from __future__ import annotations

import base64
import math
from html import escape
from typing import TYPE_CHECKING

from farandole.reading import printable
from farandole.times import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from farandole.runs.run import Run
    from farandole.runs.series import Point, Series

PANEL = (420, 230)
"""Width and height of the panel for one series, in pixels."""

MARGIN = (34, 14, 38, 58)
"""Top, right, bottom and left margin between a panel's border and its plot area, in pixels."""

MOST_PANELS = 12
INK, LINE, ACCENT, BAD = "#7a838c", "#8b949e55", "#2f81d6", "#d64545"
FONT = "system-ui,-apple-system,'Segoe UI',sans-serif"


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round values between ``low`` and ``high``, for the ticks of an axis."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.75)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{n * step:.12g}") for n in range(first, last + 1)]


def number(value: float) -> str:
    """Format a number for labels and tables, with about four significant digits."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.2e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def svg(series: Sequence[Series], title: str = "") -> str:
    """Return an SVG image with one panel per series, in two columns. At most `MOST_PANELS` series are drawn."""
    shown = series[:MOST_PANELS]
    columns = min(2, max(1, len(shown)))
    rows = math.ceil(len(shown) / columns)
    width, top = columns * PANEL[0], 26 if title else 0
    height = top + rows * PANEL[1]
    panels = [
        f'<g transform="translate({n % columns * PANEL[0]} {top + n // columns * PANEL[1]})">{panel(one)}</g>'
        for n, one in enumerate(shown)
    ]
    heading = _text(14, 18, title, size=14, weight=600) if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONT}" role="img" aria-label="{escape(title or "Reports")}">{heading}{"".join(panels)}</svg>'
    )


def panel(series: Series) -> str:
    """Return the SVG elements of one panel, which shows a series as the mean and the range over the ranks."""
    (width, height), (top, right, bottom, left) = PANEL, MARGIN
    note = f" · {series.bad} NaN or infinite" if series.bad else ""
    title = _text(left, 18, series.name, size=13, weight=600) + _text(
        width - right, 18, f"{number(series.last)}{note}", anchor="end"
    )
    finite = [point for point in series.points if math.isfinite(point.mean)]
    if not finite:
        return title + _text(width / 2, height / 2, "no finite value", anchor="middle")
    x = _scale(_domain([p.x for p in series.points], 0.0), (left, width - right))
    low_high = _domain([p.low for p in finite] + [p.high for p in finite], 0.05)
    y = _scale(low_high, (height - bottom, top))
    axes = _x_axis(series, x, height - bottom) + _y_axis(low_high, y, left, width - right)
    return title + axes + _lines(series.points, x, y) + _bad_marks(series.points, x, height - bottom)


def _domain(values: Sequence[float], share: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = (high - low) * share if high > low else abs(low) * 0.1 or 1.0
    return low - room, high + room


def _scale(domain: tuple[float, float], pixels: tuple[float, float]) -> Callable[[float], float]:
    (low, high), (start, end) = domain, pixels
    return lambda value: round(start + (value - low) / (high - low) * (end - start), 1)


def _x_axis(series: Series, x: Callable[[float], float], base: float) -> str:
    marks = [tick for tick in ticks(*_domain([p.x for p in series.points], 0.0), 5) if tick.is_integer()]
    labels = "".join(_text(x(tick), base + 15, number(tick), anchor="middle") for tick in marks)
    return labels + _text((MARGIN[3] + PANEL[0] - MARGIN[1]) / 2, base + 31, series.x_label, anchor="middle")


def _y_axis(domain: tuple[float, float], y: Callable[[float], float], left: float, right: float) -> str:
    return "".join(
        f'<line x1="{left}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}" stroke="{LINE}"/>'
        + _text(left - 7, y(tick) + 4, number(tick), anchor="end")
        for tick in ticks(*domain, 4)
    )


def _lines(points: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    return "".join(_line(part, x, y) for part in _parts(points))


def _line(part: Sequence[Point], x: Callable[[float], float], y: Callable[[float], float]) -> str:
    if len(part) == 1:
        return f'<circle cx="{x(part[0].x)}" cy="{y(part[0].mean)}" r="2.5" fill="{ACCENT}"/>'
    outline = [f"{x(p.x)},{y(p.high)}" for p in part] + [f"{x(p.x)},{y(p.low)}" for p in reversed(part)]
    mean = " ".join(f"{x(p.x)},{y(p.mean)}" for p in part)
    return (
        f'<polygon points="{" ".join(outline)}" fill="{ACCENT}" opacity="0.2"/>'
        f'<polyline points="{mean}" fill="none" stroke="{ACCENT}" stroke-width="1.8" stroke-linejoin="round"/>'
    )


def _parts(points: Sequence[Point]) -> list[list[Point]]:
    """Split a line at the points whose values are all NaN or infinite, and drop these points."""
    parts: list[list[Point]] = [[]]
    for point in points:
        if math.isfinite(point.mean):
            parts[-1].append(point)
        elif parts[-1]:
            parts.append([])
    return [part for part in parts if part]


def _bad_marks(points: Sequence[Point], x: Callable[[float], float], base: float) -> str:
    marks = [f"M{x(point.x) - 4:.1f},{base} h8 l-4,-7 z" for point in points if point.bad]
    return f'<path d="{" ".join(marks)}" fill="{BAD}"/>' if marks else ""


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: int = 400) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{INK}">'
        f"{escape(printable(text))}</text>"
    )


def summary(run: Run) -> str:
    """Return one line of text with the run's name, status, duration, number of ranks and backend."""
    info = run.info
    ranks = "1 rank" if info.size == 1 else f"{info.size} ranks"
    title = f"Run {info.name} ({info.id})" if info.name else f"Run {info.id}"
    return printable(" · ".join([title, info.status.value, duration_text(info.seconds), ranks, info.backend]))


def table(series: Sequence[Series], ranks: Sequence[int]) -> list[list[str]]:
    """Return the rows of the table below the chart: a heading, and then one row per series.

    If there are several ranks, each rank has a column with the last value that it reported.
    """
    several = len(ranks) > 1
    head = ["series", "first", "last", "lowest", "highest"] + ([f"rank {rank}" for rank in ranks] if several else [])
    return [head] + [_row(one, ranks if several else ()) for one in series]


def _row(series: Series, ranks: Sequence[int]) -> list[str]:
    values = (series.first, series.last, series.low, series.high)
    last = [number(series.last_of[rank]) if rank in series.last_of else "" for rank in ranks]
    return [printable(series.name), *map(number, values), *last]


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Format the rows of a table as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) if n == 0 else cell.rjust(width) for n, (cell, width) in enumerate(cells)).rstrip()
        for cells in (zip(row, widths, strict=True) for row in rows)
    )


def as_html(rows: Sequence[Sequence[str]]) -> str:
    """Format the rows of a table as HTML that inherits the colours of the page."""
    cell = 'style="text-align:right;padding:2px 10px;font-variant-numeric:tabular-nums"'
    first = 'style="text-align:left;padding:2px 10px 2px 0"'
    lines = [
        "".join(f"<{tag} {cell if n else first}>{escape(text)}</{tag}>" for n, text in enumerate(row))
        for tag, row in zip(["th", *["td"] * (len(rows) - 1)], rows, strict=True)
    ]
    return f'<table style="border-collapse:collapse;color:inherit"><tr>{"</tr><tr>".join(lines)}</tr></table>'


def static_bundle(run: Run, line: str) -> dict[str, str]:
    """Return the chart and the table of a run below ``line``, as a MIME bundle of HTML, SVG and plain text.

    Every notebook viewer can show at least one of these formats. If the run has no reports, the bundle has no SVG, and
    the other formats say so.
    """
    series = run.series(by_rank=False)
    rows = table(series, [view.rank for view in run.ranks()])
    notes = [text for text in (run.error, *run.notices) if text]
    text = "\n".join([line, *notes, *([as_text(rows)] if series else ["no reports"])])
    html = f"<p><strong>{escape(line)}</strong></p>" + "".join(
        f'<pre style="white-space:pre-wrap">{escape(note)}</pre>' for note in notes
    )
    if not series:
        return {"text/html": html + "<p>No reports.</p>", "text/plain": text}
    data = base64.b64encode(svg(series).encode()).decode()
    alt = escape(", ".join(f"{one.name}: last {number(one.last)}" for one in series))
    html += f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}" style="max-width:100%">{as_html(rows)}'
    if len(series) > MOST_PANELS:
        html += f"<p>The chart shows the first {MOST_PANELS} of {len(series)} series.</p>"
    return {"text/html": html, "image/svg+xml": svg(series, title=line), "text/plain": text}
