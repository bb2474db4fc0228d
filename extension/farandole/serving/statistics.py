"""Counts the requests of an endpoint, for Prometheus and for the panel."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

RECENT_SECONDS = 60.0
MOST_RECENT = 20_000
"""Requests of the last `RECENT_SECONDS` whose durations are kept."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
REQUESTS = Counter("farandole_endpoint_requests", "Requests for inference, by HTTP status.", ["status"])
SECONDS = Histogram("farandole_endpoint_request_seconds", "Duration of requests for inference.", buckets=BUCKETS)


class Statistics:
    """The figures of an endpoint.

    ``last_request`` is the time of the last request in seconds since the epoch, or of the start.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float, bool]] = deque(maxlen=MOST_RECENT)
        """When each request ended by the monotonic clock, its seconds, and whether it failed."""
        self.last_request = time.time()

    def add(self, status: int, seconds: float) -> None:
        """Add a request that was answered with an HTTP status."""
        self.last_request = time.time()
        self._recent.append((time.monotonic(), seconds, status >= 400))
        REQUESTS.labels(status=str(status)).inc()
        SECONDS.observe(seconds)

    def recent(self) -> dict[str, Any]:
        """Return the figures of the last minute.

        ``requests_per_second``, ``errors`` (a number of requests), and ``p50_ms`` and ``p95_ms``, which are None if
        there was no request.
        """
        since = time.monotonic() - RECENT_SECONDS
        while self._recent and self._recent[0][0] < since:
            self._recent.popleft()
        durations = sorted(1000 * seconds for _, seconds, _ in self._recent)
        return {
            "requests_per_second": len(durations) / RECENT_SECONDS,
            "errors": sum(failed for _, _, failed in self._recent),
            "p50_ms": _quantile(durations, 0.5),
            "p95_ms": _quantile(durations, 0.95),
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


def _quantile(ordered: list[float], part: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else None
