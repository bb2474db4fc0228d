"""Tests for the lines of progress that clients that are no page get."""

import time
from types import SimpleNamespace

import pytest
from farandole.notebook import progress
from farandole.notebook.progress import ProgressLines, progress_line
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RunInfo
from farandole.runs.run import Run


@pytest.fixture
def run(tmp_path):
    info = RunInfo(id="20261121-123005-3f2a", folder=tmp_path, name="digits", size=2, backend="torch")
    run = Run(RunInfo(**{**vars(info), "started": time.time() - 7}), "code")
    for rank in (0, 1):
        run.add_records(rank, report_to_json(Report(rank=rank, time=1.0, step=3, values={"loss": 0.25})))
        bar = {"kind": "progress", "rank": rank, "time": 1.0, "name": "batches", "done": 40, "total": 100, "rate": 2.0}
        run.add_records(rank, bar)
    return run


def test_a_line_has_status_progress_and_metrics(run):
    line = progress_line(run)
    assert line == (
        "Run digits (20261121-123005-3f2a) · running · 0:07 · 2 ranks · torch · batches 40/100, 0:30 left · loss 0.25"
    )
    run.finish(Status.FINISHED)
    assert "finished" in progress_line(run)
    assert "batches" not in progress_line(run)


def test_a_line_has_the_time_left_of_nested_loops(run):
    epochs = {"kind": "progress", "rank": 0, "time": 61.0, "name": "epochs", "done": 2, "total": 10, "rate": 1 / 30}
    run.add_records(0, {**epochs, "started": 1.0, "ended": False})
    run.add_records(0, {**epochs, "started": 61.0, "ended": False, "name": "batches", "done": 0})
    assert "2 ranks · torch · about 4:00 left · " in progress_line(run)


def test_lines_are_printed_less_and_less_often(run, monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0, time=time.time, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)
    lines = ProgressLines(run)

    def printed(seconds):
        clock.now = seconds
        lines.refresh()
        return "Run digits" in capsys.readouterr().out

    assert [seconds for seconds in range(200) if printed(seconds)] == [10, 30, 70, 130, 190]
    run.finish(Status.FINISHED)
    assert not printed(1000)
