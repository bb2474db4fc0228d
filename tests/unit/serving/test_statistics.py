"""The figures of an endpoint count each request of the last minute."""

import httpx
import pytest
from farandole.serving.statistics import MOST_DURATIONS, Counted, Statistics
from starlette.responses import JSONResponse


class Clock:
    """Returns ``now``, which a test sets."""

    def __init__(self):
        self.now = 1000.5

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def statistics(clock):
    return Statistics(clock)


async def answering(scope, receive, send):
    if scope["path"].endswith("/broken/infer"):
        raise RuntimeError("broken")
    await JSONResponse({}, 404 if scope["path"].endswith("/missing/infer") else 200)(scope, receive, send)


def test_without_requests_the_figures_are_zero(statistics):
    assert statistics.recent() == {"requests_per_second": 0.0, "errors": 0, "p95_ms": None}


@pytest.mark.parametrize(("uptime", "per_second"), [(0, 300), (1, 300), (10, 30), (60, 5), (600, 5)])
def test_the_rate_is_that_since_the_start_for_a_minute(statistics, clock, uptime, per_second):
    clock.now += uptime
    for _ in range(300):
        statistics.add(200, 0.001)
    assert statistics.recent()["requests_per_second"] == per_second


def test_requests_and_errors_at_a_high_rate_are_all_counted(statistics, clock):
    clock.now += 60
    for second in range(59):
        for _ in range(1000):
            statistics.add(500 if second == 0 else 200, 0.001)
        clock.now += 1
    found = statistics.recent()
    assert MOST_DURATIONS < 59_000
    assert (found["requests_per_second"], found["errors"]) == (59_000 / 60, 1000)


def test_the_figures_are_those_of_the_last_minute(statistics, clock):
    statistics.add(500, 9.0)
    clock.now += 30
    statistics.add(400, 0.5)
    assert (statistics.recent()["errors"], statistics.recent()["p95_ms"]) == (2, 9000.0)
    clock.now += 31
    assert statistics.recent() == {"requests_per_second": 1 / 60, "errors": 1, "p95_ms": 500.0}
    clock.now += 3600
    assert statistics.recent() == {"requests_per_second": 0.0, "errors": 0, "p95_ms": None}


def test_95_percent_of_the_requests_took_at_most_the_shown_time(statistics):
    for milliseconds in range(100):
        statistics.add(200, milliseconds / 1000)
    assert statistics.recent()["p95_ms"] == 95.0


async def test_requests_for_inference_are_counted(statistics):
    before = statistics.last_request
    transport = httpx.ASGITransport(Counted(answering, statistics), raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://endpoint")
    await client.get("/v2/models/iris")
    assert statistics.last_request == before
    for path in ("iris/infer", "iris/versions/3/infer", "missing/infer", "broken/infer"):
        await client.post(f"/v2/models/{path}")
    found = statistics.recent()
    assert (found["requests_per_second"], found["errors"]) == (4, 2)
    assert statistics.last_request > before
