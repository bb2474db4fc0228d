"""Tests for the status of an idle worker, which says when the worker will be stopped."""

from datetime import UTC, datetime

import pytest
from farandole.driver.core.status import idle_state
from farandole.driver.workers.worker import WorkerInfo

NOW = datetime(2026, 11, 21, 14, 5, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("idle_seconds", "idle_minutes", "words"),
    [
        (None, 30.0, "busy"),
        (None, 0.0, "busy"),
        (500.0, 0.0, "idle"),
        (12.0, 30.0, "idle for 0:12, stopped at 14:34 UTC unless used"),
        (180.0, 30.0, "idle for 3:00, stopped at 14:32 UTC unless used"),
        (3000.0, 30.0, "idle for 50:00, stopped at 14:05 UTC unless used"),
        (60.0, 1440.0, "idle for 1:00, stopped at 2026-11-22 14:04 UTC unless used"),
    ],
)
def test_the_end_of_an_idle_worker_is_announced(set_zone, idle_seconds, idle_minutes, words):
    set_zone("UTC")
    look = WorkerInfo(
        worker="c-w0",
        ranks=1,
        profile="",
        host="h",
        address="",
        node="n",
        backends=("none",),
        idle_minutes=idle_minutes,
        idle_seconds=idle_seconds,
    )
    assert idle_state(look, NOW) == words
