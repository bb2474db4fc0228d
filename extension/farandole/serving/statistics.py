"""Counts the requests of an endpoint, for Prometheus and for the panel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from farandole.serving.recent import RECENT_SECONDS, RecentCount

MOST_DURATIONS = 20_000
"""Requests whose durations are kept. These are fewer than those of the last `RECENT_SECONDS` at a high rate."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REQUESTS = Counter("farandole_endpoint_requests", "Requests for inference, by HTTP status.", ["status"])
SECONDS = Histogram("farandole_endpoint_request_seconds", "Duration of requests for inference.", buckets=BUCKETS)


class Statistics:
    """The figures of an endpoint.

    ``last_request`` is the time of the last request or record, or of the start, in seconds since the epoch. ``clock``
    is a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests = RecentCount(clock)
        self._errors = RecentCount(clock)
        self._durations: deque[tuple[float, float]] = deque(maxlen=MOST_DURATIONS)
        """When each request ended, and its seconds."""
        self.last_request = time.time()

    def use(self) -> None:
        """Note that the endpoint is in use now, although no request was answered."""
        self.last_request = time.time()

    def add(self, status: int, seconds: float) -> None:
        """Add a request that was answered with an HTTP status."""
        self.use()
        now = self._clock()
        self._durations.append((now, seconds))
        self._requests.add()
        self._errors.add(status >= 400)
        REQUESTS.labels(status=str(status)).inc()
        SECONDS.observe(seconds)

    def recent(self) -> dict[str, Any]:
        """Return the figures of the last minute, or since the start.

        ``requests_per_second``, ``errors`` (a number of requests), and ``p95_ms``, which is None if there was no
        request.
        """
        now = self._clock()
        durations = sorted(1000 * taken for ended, taken in self._durations if ended > now - RECENT_SECONDS)
        return {
            "requests_per_second": self._requests.per_second(),
            "errors": self._errors.total(),
            "p95_ms": durations[int(0.95 * len(durations))] if durations else None,
        }


class Counted:
    """ASGI middleware that adds the requests for inference to the statistics."""

    def __init__(self, app: ASGIApp, statistics: Statistics) -> None:
        self._app = app
        self._statistics = statistics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, and count it if it is one for inference."""
        if scope["type"] != "http" or not scope["path"].endswith("/infer"):
            await self._app(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            self._statistics.add(status, time.perf_counter() - begun)
