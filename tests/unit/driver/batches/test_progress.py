"""Tests of how the progress of a job appears in its run."""

import pytest
from farandole.batches.parts import PartResult
from farandole.driver.batches import progress
from farandole.driver.batches.progress import BatchProgress
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from farandole.runs.view import view_of


class Clock:
    def __init__(self):
        self.now = 1000.0

    def time(self):
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_the_run_has_progress_rate_and_time_left(clock, tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=2, workers=("w", "w"), started=1000.0), "")
    lines = []
    found = BatchProgress(run, lines.append, total=10, done=2)
    for rank in (0, 1, 1, 1):
        found.add(rank, PartResult(rows=100, seconds=1.5))
    clock.now += 5
    found.show()
    view = view_of(run, clock.now)
    assert view["progress"] == [{"name": "parts", "done": 6, "total": 10, "seconds_left": 5}]
    assert view["samples_per_second"] == 80
    assert [rank["samples_per_second"] for rank in view["ranks"]] == [20, 60]
    assert [rank["step_seconds"] for rank in view["ranks"]] == [1.5, 1.5]
    assert lines == ["6/10 parts, 80 rows/s, 0:05 left"]
    [series] = view["series"]
    assert (series["name"], series["last"], series["x"]) == ("rows_per_second", 80, [6])


def test_nothing_is_reported_before_there_are_rows(clock, tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("w",), started=1000.0), "")
    lines = []
    found = BatchProgress(run, lines.append, total=10, done=0)
    clock.now += 6
    found.show()
    assert view_of(run, clock.now)["series"] == []
    assert lines == ["0/10 parts, 0 rows/s"]
    found.add(0, PartResult(rows=10, seconds=1.0))
    found.show(last=True)
    assert run.received()[0] == 1
