"""Tests for the formats in which a saved notebook contains a chart: SVG, HTML and text."""

import base64
import math
import re
from xml.etree import ElementTree as ET

import pytest
from farandole.notebook.chart import duration, number, static_bundle, summary, svg, ticks
from farandole.notebook.display import show_runs
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from IPython.core.interactiveshell import InteractiveShell

EVIL = "<script>alert(1)</script>&"


@pytest.fixture
def run(tmp_path):
    info = RunInfo(id="r1", folder=tmp_path, name="first", size=2, workers=("a", "b"), backend="torch", started=10.0)
    return Run(info, "")


def report(run, rank, step, **values):
    run.add_records(rank, report_to_json(Report(rank=rank, time=0.0, step=step, values=values)))


def shapes(picture):
    return [element.tag.rpartition("}")[2] for element in ET.fromstring(picture).iter()]


def test_the_bundle_has_picture_table_and_text(run):
    for step in range(10):
        report(run, 0, step, loss=1.0 / (step + 1), accuracy=step / 10)
        report(run, 1, step, loss=2.0 / (step + 1), accuracy=step / 10)
    run.finish(Status.FINISHED)
    bundle = static_bundle(run, summary(run))
    assert sorted(bundle) == ["image/svg+xml", "text/html", "text/plain"]
    lines = bundle["text/plain"].splitlines()
    assert "first (r1) · finished" in lines[0]
    assert lines[1].split() == ["series", "first", "last", "lowest", "highest", "rank", "0", "rank", "1"]
    assert lines[2].split() == ["loss", "1.5", "0.15", "0.1", "2", "0.1", "0.2"]
    data = re.search(r'data:image/svg\+xml;base64,([^"]+)', bundle["text/html"])[1]
    assert shapes(base64.b64decode(data)).count("polyline") == 2
    ET.fromstring(f"<div>{bundle['text/html'].replace('max-width:100%' + chr(34) + '>', 'x' + chr(34) + '/>')}</div>")


def test_bundle_of_a_run_without_reports(run):
    run.finish(Status.FAILED, "rank 1 died")
    bundle = static_bundle(run, summary(run))
    assert "no reports" in bundle["text/plain"]
    assert "rank 1 died" in bundle["text/html"]
    assert "image/svg+xml" not in bundle


def test_text_of_the_run_is_escaped(tmp_path):
    run = Run(RunInfo(id="r", folder=tmp_path, name=EVIL, size=1, workers=("w",)), "")
    report(run, 0, 0, **{EVIL: 1.0})
    run.notice(EVIL)
    bundle = static_bundle(run, summary(run))
    assert "<script" not in bundle["text/html"]
    assert "script" not in shapes(bundle["image/svg+xml"])


def test_a_gap_splits_the_line_and_is_marked(run):
    for step, value in enumerate([3.0, 2.0, math.nan, 1.0, 0.5]):
        report(run, 0, step, loss=value)
    picture = svg(run.series())
    assert shapes(picture).count("polyline") == 2
    assert shapes(picture).count("path") == 1
    assert "1 NaN or infinite" in picture


@pytest.mark.parametrize("value", [0.0, 1.0, -5.0, 1e300, -1e-300, math.nan, math.inf, 1.7e308])
def test_a_single_value_is_always_drawn(run, value):
    report(run, 0, 3, loss=value)
    report(run, 1, 3, loss=value)
    picture = svg(run.series())
    ET.fromstring(picture)
    assert not re.search(r'="[^"]*\b(nan|inf)\b[^"]*"', picture)


def test_many_series_are_capped(run):
    report(run, 0, 0, **{f"s{n}": 1.0 for n in range(20)})
    assert "first 12 of 20" in static_bundle(run, "")["text/html"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (0, 399, [0, 100, 200, 300]), (-1, 1, [-1, -0.5, 0, 0.5, 1])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high, 4) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.12345, "0.1235"), (1234.5, "1,234"), (1e7, "1.00e7"), (1e-5, "1.00e-5"), (math.inf, "∞")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_durations():
    assert [duration(seconds) for seconds in (0, 65, 3725)] == ["0:00", "1:05", "1:02:05"]


def test_a_run_as_last_value_is_displayed(run):
    shell = InteractiveShell.instance()
    show_runs(shell)
    report(run, 0, 0, loss=1.0)
    run.finish(Status.FINISHED)
    data, _ = shell.display_formatter.format(run)
    assert "image/svg+xml" in data
