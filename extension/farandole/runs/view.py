"""Makes the JSON data that the dashboard shows. The data depends only on the run and the current time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from farandole.protocol import is_number
from farandole.runs.series import POINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from farandole.runs.model import RankView
    from farandole.runs.run import Run
    from farandole.runs.series import Point, Series

SLOWER = 1.05
"""The slowest rank is highlighted if its step time exceeds this multiple of the mean step time."""

FRESH_SECONDS = 10.0
"""A loop's speed is ignored if another loop's progress message is newer by at least this many seconds."""


def view_of(run: Run, now: float, *, per_rank: bool = False) -> dict[str, Any]:
    """Return all data for the dashboard. ``now`` is in seconds since the epoch. ``per_rank`` adds a line per rank."""
    info, ranks = run.info, run.ranks()
    rows = [_row(view) for view in ranks]
    _mark_slowest(rows)
    reports, output_bytes = run.received()
    return {
        "id": info.id,
        "name": info.name,
        "status": info.status.value,
        "ended": info.status.ended,
        "error": info.error,
        "notices": list(info.notices),
        "warnings": list(info.warnings),
        "backend": info.backend,
        "size": info.size,
        "elapsed": math.floor(max(0.0, (info.ended or now) - info.started)),
        "seconds_left": None if info.status.ended else short(seconds_left(ranks)),
        "progress": [] if info.status.ended else progress(ranks),
        "samples_per_second": short(total(row["samples_per_second"] for row in rows)),
        "reports": reports,
        "output_bytes": output_bytes,
        "series": [series_view(series, info.started, per_rank=per_rank) for series in run.series(by_rank=per_rank)],
        "sync": _sync_view(info.sync, info.size),
        "ranks": rows,
    }


def _sync_view(figures: Mapping[int, Mapping[str, Any]], size: int) -> dict[str, Any] | None:
    """Return the figures of a mode of `fd.sync`: the mean of the bytes, and of the others those of the slowest rank.

    Ranks that a smaller world of ``size`` ranks no longer has are left out.
    """
    ranks = [one for rank, one in sorted(figures.items()) if rank < size]
    if not ranks:
        return None
    # Each term is divided, because the sum of the largest numbers would be infinite.
    sent = sum(one["bytes_per_step"] / len(ranks) for one in ranks)
    return {
        "mode": ranks[0]["mode"],
        "waiting": short(max((one["waiting"] for one in ranks if one["waiting"] is not None), default=None)),
        "bytes_per_step": round(sent) or math.ceil(sent),
        "staleness": round(max(one["staleness"] for one in ranks)),
    }


def progress(ranks: Sequence[RankView]) -> list[dict[str, Any]]:
    """Return a progress bar for each running loop.

    A bar shows the mean progress of the ranks, and how many seconds the slowest rank still needs. While no loop is
    running, only the bar of the last loop is returned, because many bars would push the charts off the screen.
    """
    alive = [view for view in ranks if view.state != "dead"]
    names = dict.fromkeys(name for view in alive for name in view.progress)
    records = {name: [view.progress[name] for view in alive if name in view.progress] for name in names}
    if not records:
        return []
    newest = {name: max(record["time"] for record in found) for name, found in records.items()}
    running = [name for name in names if _is_running(records[name])]
    return [_bar(name, records[name]) for name in running or [max(newest, key=newest.__getitem__)]]


def _is_running(records: Sequence[dict[str, Any]]) -> bool:
    unended = [record for record in records if not record.get("ended")]
    return any(record.get("total") is None or record["done"] < record["total"] for record in unended)


def _bar(name: str, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    totals = [record["total"] for record in records if record.get("total")]
    known = len(totals) == len(records)
    left = [(record["total"] - record["done"]) / record["rate"] for record in records if known and record.get("rate")]
    return {
        "name": name,
        "done": short(sum(record["done"] for record in records) / len(records)),
        "total": short(sum(totals) / len(totals)) if known else None,
        "seconds_left": short(max(left)) if left else None,
    }


def seconds_left(ranks: Iterable[RankView]) -> float | None:
    """Return the seconds that the slowest rank still needs, or None if no rank knows."""
    left = [seconds for view in ranks if view.state == "running" and (seconds := _left_on(view)) is not None]
    return max(left, default=None)


def _left_on(view: RankView) -> float | None:
    """Return the seconds that a rank still needs for its outermost loop, or None if they are unknown.

    A loop without another one inside is not enough, because it may be one of many epochs.
    """
    loops = sorted((one for one in view.progress.values() if "started" in one), key=lambda one: one["started"])
    running = next((place for place, loop in enumerate(loops) if not loop["ended"]), len(loops))
    outer, inner = loops[running : running + 1], loops[running + 1 :]
    if not inner or not outer[0]["total"]:
        return None
    # Usage is measured every few seconds. All times are from the rank's clock.
    now = max(record["time"] for record in (*loops, view.usage) if record)
    return _left(outer[0], inner, now)


def _left(outer: dict[str, Any], inner: Sequence[dict[str, Any]], now: float) -> float | None:
    """Return the seconds left in the loop ``outer``, or None until a part of its first step is done."""
    # Finished steps are a better measure than the inner loops, because a step may consist of several inner loops.
    done = outer["done"] or min(1.0, _share(inner))
    if not done:
        return None
    measured = outer["time"] if outer["done"] else now
    step: float = (measured - outer["started"]) / done
    left: float = (outer["total"] - outer["done"]) * step - min(step, now - outer["time"])
    return max(0.0, left)


def _share(loops: Sequence[dict[str, Any]]) -> float:
    """Return which part of the first loop is done. The others are inside it or follow it."""
    if not loops:
        return 0.0
    first, *others = loops
    if first["ended"]:
        return 1.0
    return (first["done"] + _share(others)) / first["total"] if first["total"] else 0.0


def series_view(series: Series, started: float, *, per_rank: bool) -> dict[str, Any]:
    """Return one series as JSON data. Values that are not finite become null, and ``bad_x`` lists their x values.

    - ``started`` is the time from which the seconds in ``time`` are counted.
    - ``lowest`` and ``highest`` are single values of a rank. The means of the points do not contain them, because a
      point of a long run is the mean of many values.
    """
    points = series.points[-POINTS * 2 :]
    epochs = [short(point.epoch) for point in points]
    return {
        "name": series.name,
        "x_label": series.x_label,
        "bad": series.bad,
        "bad_x": [short(point.x) for point in series.points if point.bad],
        "last": short(series.last),
        "lowest": short(series.low),
        "highest": short(series.high),
        **_line(points, ("mean", "low", "high")),
        "time": [short(point.time - started) for point in points],
        "epoch": epochs if series.x_label == "step" and any(epoch is not None for epoch in epochs) else [],
        "ranks": {str(rank): _line(points, ("mean",)) for rank, points in series.ranks.items()} if per_rank else None,
    }


def extremes(series: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the lowest and the highest value of a series in a stored view, or None where there is no finite value.

    The views of older releases contain only the lows and highs of the points that are drawn.
    """
    if "lowest" in series and "highest" in series:
        return series["lowest"], series["highest"]
    return _extreme(min, series.get("low")), _extreme(max, series.get("high"))


def _extreme(best: Callable[..., float | None], values: Any) -> float | None:
    numbers = [value for value in values if is_number(value)] if isinstance(values, list) else []
    return best(numbers, default=None)


def _line(points: Sequence[Point], parts: Sequence[str]) -> dict[str, list[float | None]]:
    return {"x": [short(point.x) for point in points]} | {
        part: [short(getattr(point, part)) for point in points] for part in parts
    }


def _row(view: RankView) -> dict[str, Any]:
    usage, step = view.usage, _busiest(view)
    return {
        "rank": view.rank,
        "worker": view.worker,
        "state": view.state,
        "cpu": short(usage.get("cpu_percent")),
        "memory": usage.get("memory_bytes"),
        "gpu": short(usage.get("gpu_percent")),
        "gpu_memory": usage.get("gpu_memory_bytes"),
        "gpu_memory_total": usage.get("gpu_memory_total_bytes"),
        "samples_per_second": short(step.get("samples_per_second")),
        "step_seconds": short(step.get("step_seconds")),
        "slowest": False,
        "model": _model(usage),
        "log": view.log.lines(),
    }


def _model(usage: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how much memory the prepared model takes on a rank, or None before its first step."""
    if usage.get("parameters_bytes") is None:
        return None
    names = ("parameters", "gradients", "optimizer", "activations", "step_sent")
    return {name: usage.get(f"{name}_bytes") for name in names}


def _busiest(view: RankView) -> dict[str, Any]:
    """Return the recent progress message with the most samples per second, which comes from the innermost loop."""
    newest = max((record["time"] for record in view.progress.values()), default=0.0)
    fresh = [record for record in view.progress.values() if newest - record["time"] < FRESH_SECONDS]
    return max(fresh, key=lambda record: record.get("samples_per_second") or 0.0, default={})


def _mark_slowest(rows: Sequence[dict[str, Any]]) -> None:
    timed = [row for row in rows if row["step_seconds"]]
    if len(timed) < 2:
        return
    slowest = max(timed, key=lambda row: row["step_seconds"])
    mean = sum(row["step_seconds"] for row in timed) / len(timed)
    slowest["slowest"] = slowest["step_seconds"] > SLOWER * mean


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not None, or None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def short(value: float | None) -> float | None:
    """Round a number to six significant digits, which keeps the JSON short. Return None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
