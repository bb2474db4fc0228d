"""Decides when the next checkpoint is due: after a number of commits, or after a duration."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from farandole.exceptions import UsageError

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")


class EveryCommits:
    """Schedule with a checkpoint every ``count`` commits."""

    def __init__(self, count: int) -> None:
        self._count = count

    def due(self, _commits: int) -> bool:
        """Return True, because a checkpoint is due at every commit that `next_decision` returns."""
        return True

    def next_decision(self, commits: int) -> int:
        """Return the commit at which the ranks next decide whether a checkpoint is due."""
        return commits + self._count


class EverySeconds:
    """Schedule with a checkpoint every ``seconds`` seconds, measured by rank 0's clock.

    The ranks' clocks differ, so all ranks have to ask rank 0, which takes a collective. To keep these collectives rare,
    the ranks agree on the commit of the next decision. That commit comes after half of the commits that rank 0 expects
    in the rest of the interval.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last = self._seen = clock()
        self._at = 0
        self._pace = math.inf
        """Seconds per commit between the last two decisions.

        It is infinite at first, so that the first decision is made at the next commit.
        """

    def due(self, commits: int) -> bool:
        """Return whether a checkpoint is due at this commit. If so, start the next interval."""
        now = self._clock()
        self._pace = (now - self._seen) / max(1, commits - self._at)
        self._seen, self._at = now, commits
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True

    def next_decision(self, commits: int) -> int:
        """Return the commit at which the ranks next decide whether a checkpoint is due."""
        left = self._last + self._seconds - self._clock()
        expected = left / self._pace / 2 if self._pace > 0 else 1
        return commits + max(1, min(1000, int(expected)))


def parse_every(every: object) -> EveryCommits | EverySeconds:
    """Return the schedule for ``every``, a number of commits or a duration such as ``10s``, ``5min`` or ``1h``.

    Raises UsageError for other values.
    """
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return EveryCommits(every)
    match = _DURATION.fullmatch(every.strip()) if isinstance(every, str) else None
    if match and float(match[1]) > 0:
        return EverySeconds(float(match[1]) * UNITS[match[2]])
    raise UsageError(
        f"fd.checkpoint: every is {every!r}; give a number of commits, e.g. every=100, or a duration in s, min or h, "
        "e.g. every='5min'."
    )
