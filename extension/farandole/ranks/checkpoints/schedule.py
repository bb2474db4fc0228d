"""When the next checkpoint is due: after so many commits, or so much time."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from farandole.exceptions import UsageError

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")


class EveryCommits:
    """Due after a number of commits."""

    def __init__(self, count: int) -> None:
        self._count = count

    def due(self, _commits: int) -> bool:
        """Say whether a checkpoint is due at this commit, where the ranks meet."""
        return True

    def meet_again(self, commits: int) -> int:
        """Return the commit at which the ranks meet next."""
        return commits + self._count


class EverySeconds:
    """Due after a time.

    The clocks of the ranks differ, so rank 0's counts, and the others have to ask it. They meet for that at commits
    that they all know: half of the commits later that rank 0 expects until the time is over, so only a few times.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._last = self._seen = clock()
        self._at = 0
        self._pace = math.inf
        """Seconds a commit took since the ranks last met; nobody knows at first, so they meet at the next one."""

    def due(self, commits: int) -> bool:
        """Say whether a checkpoint is due at this commit, where the ranks meet; the next one counts from here."""
        now = self._clock()
        self._pace = (now - self._seen) / max(1, commits - self._at)
        self._seen, self._at = now, commits
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True

    def meet_again(self, commits: int) -> int:
        """Return the commit at which the ranks meet next."""
        left = self._last + self._seconds - self._clock()
        expected = left / self._pace / 2 if self._pace > 0 else 1
        return commits + max(1, min(1000, int(expected)))


def parse_every(every: object) -> EveryCommits | EverySeconds:
    """Return the schedule of ``every``: a number of commits, or a duration such as ``10s``, ``5min`` or ``1h``.

    Raises: UsageError for anything else.
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
