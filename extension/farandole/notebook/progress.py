"""Describes the progress of a run in lines of text, for clients that do not draw the run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from farandole.notebook.chart import number, summary
from farandole.reading import printable
from farandole.runs.view import view_of
from farandole.times import duration_text

if TYPE_CHECKING:
    from farandole.runs.run import Run

FIRST_SECONDS = 10.0
"""How many seconds after the beginning of a run the first line is printed. The time to the next line doubles each
time, up to `MOST_SECONDS`."""
MOST_SECONDS = 60.0
MOST_SERIES = 4


def progress_line(run: Run) -> str:
    """Return the status of a run, the progress of its loops, and its latest metrics as one line."""
    view = view_of(run, time.time())
    metrics = [f"{one['name']} {_value(one['last'])}" for one in view["series"][:MOST_SERIES]]
    left = [] if view["seconds_left"] is None else [f"about {duration_text(view['seconds_left'])} left"]
    return printable(" · ".join([summary(run), *left, *map(_bar, view["progress"]), *metrics]))


def _bar(bar: dict[str, Any]) -> str:
    done = number(bar["done"]) + (f"/{number(bar['total'])}" if bar["total"] else "")
    left = f", {duration_text(bar['seconds_left'])} left" if bar["seconds_left"] else ""
    return " ".join(filter(None, [bar["name"], done])) + left


def _value(value: float | None) -> str:
    return "NaN" if value is None else number(value)


class ProgressLines:
    """Prints `progress_line` from time to time during a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seconds = FIRST_SECONDS
        self._due = time.monotonic() + FIRST_SECONDS

    def refresh(self) -> None:
        """Print a line if it is time for one."""
        if time.monotonic() < self._due or self._run.status.ended:
            return
        self._seconds = min(2 * self._seconds, MOST_SECONDS)
        self._due = time.monotonic() + self._seconds
        print(progress_line(self._run), flush=True)
