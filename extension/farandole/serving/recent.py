"""Counts what has happened in the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

RECENT_SECONDS = 60


class RecentCount:
    """A number of events in the last `RECENT_SECONDS`. ``clock`` is a monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._started = clock()
        self._seconds: deque[tuple[int, int]] = deque(maxlen=RECENT_SECONDS)
        """Whole seconds of the clock, each with its number of events."""

    def add(self, count: int = 1) -> None:
        """Add events that happen now."""
        now = int(self._clock())
        if self._seconds and self._seconds[-1][0] == now:
            count += self._seconds.pop()[1]
        self._seconds.append((now, count))

    def total(self) -> int:
        """Return the number of recent events."""
        first = int(self._clock()) - RECENT_SECONDS
        return sum(count for second, count in self._seconds if second > first)

    def per_second(self) -> float:
        """Return the recent events per second, or those since the start if that is later."""
        return self.total() / min(RECENT_SECONDS, max(1.0, self._clock() - self._started))
