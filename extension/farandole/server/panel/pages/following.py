"""Finds the news of runs that a page follows for its notifications. They are much smaller than views."""

from __future__ import annotations

import hashlib
import json
import time

from farandole.server.panel import wire
from farandole.server.panel.panel import Panel

FOLLOW_SECONDS = 5.0
"""How often a view is read for news while the run is active. Every open page follows all active runs."""
MOST_BAD = 100
"""The largest number of series with NaN or infinite values in a message."""


class Following:
    """A run that a page follows, and the news of which the page knows."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._due = 0.0
        self._goes_on = True
        self._known = ""

    def news(self, panel: Panel) -> wire.FollowedMessage | None:
        """Return the news since the last call, or None if there are none or the next time to look has not come.

        The end of a run is returned at once. Raises RunNotFoundError if the run does not exist or cannot be read.
        """
        info = panel.index.find(self._run)
        summary = panel.index.summary(info, panel.monitor.snapshot.active_runs())
        if time.monotonic() < self._due and summary["goes_on"] == self._goes_on:
            return None
        self._goes_on = summary["goes_on"]
        view = panel.charts.of(info, summary).view
        self._due = time.monotonic() + FOLLOW_SECONDS
        bad = [(one["name"], one["bad"]) for one in view["series"] if one["bad"]]
        activity = activity_of(view)
        # The page counts the duration of an active run itself.
        known = json.dumps([activity, bad, {**summary, "seconds": 0}])
        if known == self._known:
            return None
        self._known = known
        return {
            "kind": "followed",
            "id": self._run,
            "summary": summary,
            "activity": activity,
            "bad": dict(bad[:MOST_BAD]),
        }


def activity_of(view: wire.RunView) -> str:
    """Return a short text that changes with each report, progress message and output of a run.

    A view that was made from samples of long files counts no reports between the samples, but has the last values.
    """
    last = [[series["name"], series["last"], series["x"][-1:]] for series in view["series"]]
    signs = [view["reports"], view["output_bytes"], view["progress"], last]
    return hashlib.blake2b(json.dumps(signs).encode(), digest_size=8).hexdigest()
