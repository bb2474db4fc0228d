"""Tests for the news of followed runs: what counts as a sign of life. test_page.py tests when a page receives news."""

import math

import pytest
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from farandole.runs.store import RunStore
from farandole.runs.view import view_of
from farandole.server.panel import charts
from farandole.server.panel.pages.following import activity_of
from farandole.server.panel.runs import RunIndex

LINE = "größer\n"
PROGRESS = {"kind": "progress", "rank": 0, "name": "epoch", "done": 1, "total": 9, "samples": 1, "started": 0.0}


def report(run, *, loss):
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"loss": loss})))


@pytest.mark.parametrize(
    "live",
    [
        lambda run: run.add_log(0, LINE),
        lambda run: report(run, loss=1.0),
        lambda run: run.add_records(0, {**PROGRESS, "time": 1.0, "ended": False}),
    ],
    ids=["output", "report", "progress"],
)
def test_a_sign_of_life_counts_even_if_it_looks_like_the_last(tmp_path, live):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("c-w0",)), "code")
    run.add_log(0, LINE * 5)
    report(run, loss=1.0)
    before = view_of(run, 1.0)
    live(run)
    after = view_of(run, 1.0)
    assert [row["log"] for row in after["ranks"]] == [row["log"] for row in before["ranks"]]
    assert activity_of(after) != activity_of(before)


def test_time_and_usage_are_no_sign_of_life(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("c-w0",)), "code")
    report(run, loss=math.nan)
    before = activity_of(view_of(run, 1.0))
    run.add_records(0, {"kind": "usage", "rank": 0, "time": 2.0, "cpu_percent": 99.0, "memory_bytes": 1})
    assert activity_of(view_of(run, 600.0)) == before


def test_a_view_counts_reports_and_bytes_of_output(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, size=1, workers=("c-w0",)), "code")
    run.add_log(0, LINE)
    report(run, loss=1.0)
    report(run, loss=1.0)
    view = view_of(run, 1.0)
    assert (view["reports"], view["output_bytes"]) == (2, 9)


def test_a_view_from_the_files_of_a_run_counts_all_bytes_of_its_logs(tmp_path):
    store = RunStore(tmp_path)
    run = store.create(code="", backend="torch", size=1, workers=["c-w0"])
    run.add_log(0, LINE * 100_000)
    run.finish(Status.FINISHED)
    assert charts.sample(RunIndex(tmp_path, tmp_path).find(run.id)).view["output_bytes"] == 900_000
