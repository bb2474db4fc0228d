"""Estimates how long a run still takes, from the progress of the loops that ``fd.track`` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from farandole.runs.model import RankView


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
    step = (measured - outer["started"]) / done
    return max(0.0, (outer["total"] - outer["done"]) * step - min(step, now - outer["time"]))


def _share(loops: Sequence[dict[str, Any]]) -> float:
    """Return which part of the first loop is done. The others are inside it or follow it."""
    if not loops:
        return 0.0
    first, *others = loops
    if first["ended"]:
        return 1.0
    return (first["done"] + _share(others)) / first["total"] if first["total"] else 0.0
