"""What an endpoint says of its stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Counter, Gauge

from farandole.serving.recent import RecentCount
from farandole.serving.streams.log import Output
from farandole.streams.address import StreamAddress

RECORDS = Counter("farandole_endpoint_records", "Records of streams, by outcome: scored or dead_letter.", ["outcome"])
LAG = Gauge("farandole_endpoint_records_lag", "Records that wait in the source, or NaN if this is not known.")


class StreamFigures:
    """The figures of a stream.

    ``lag`` is the number of records that wait, or None if this is not known. ``problem`` says why no record is scored
    at the moment. ``clock`` is a monotonic clock.
    """

    def __init__(
        self, source: StreamAddress, target: StreamAddress, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._target = target
        self._scored = RecentCount(clock)
        self._dead_letters = 0
        self._lag: int | None = None
        self.problem = ""

    @property
    def lag(self) -> int | None:
        """The number of records that wait, or None if this is not known."""
        return self._lag

    @lag.setter
    def lag(self, waiting: int | None) -> None:
        self._lag = waiting
        LAG.set(float("nan") if waiting is None else waiting)

    def add(self, outputs: Sequence[Output], waiting: int | None) -> None:
        """Add records that have outputs. ``waiting`` records are left in the source, if this is known."""
        dead = sum(bool(one.error) for one in outputs)
        self._scored.add(len(outputs) - dead)
        self._dead_letters += dead
        self.lag = waiting
        RECORDS.labels(outcome="scored").inc(len(outputs) - dead)
        RECORDS.labels(outcome="dead_letter").inc(dead)

    def status(self) -> dict[str, Any]:
        """Return the figures for the endpoint's status."""
        return {
            "source": str(self._source),
            "target": str(self._target),
            "lag": self.lag,
            "records_per_second": self._scored.per_second(),
            "dead_letters": self._dead_letters,
            "problem": self.problem,
        }
