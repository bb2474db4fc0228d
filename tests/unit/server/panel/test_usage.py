"""Tests for the usage of a run over time, as the panel's route returns it."""

import json

import pytest
from farandole.runs.model import RunInfo
from farandole.runs.series import POINTS
from farandole.server.panel import charts, wire_routes
from farandole.server.panel.charts import usage

from tests.panel import panel_server
from tests.strange import BAD, outside, replaced, write_run
from tests.unit.server.panel.test_wire import misfit

STARTED = 1_000.0
SAMPLE = {"kind": "usage", "cpu_percent": 50.0, "memory_bytes": 2**30, "received_bytes": 10, "sent_bytes": None}


@pytest.fixture
def info(tmp_path):
    (tmp_path / "usage").mkdir()
    return RunInfo(id="r", folder=tmp_path, size=2, started=STARTED)


def write(folder, rank, *records):
    lines = [record if isinstance(record, str) else json.dumps({"rank": rank, **record}) for record in records]
    (folder / "usage" / f"rank-{rank}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def samples(seconds, **changes):
    return [{**SAMPLE, "time": STARTED + second + 0.25, **changes} for second in range(seconds)]


def by_name(found):
    return {series["name"]: series for series in found["series"]}


def test_the_usage_has_the_mean_and_the_bounds_over_the_ranks(info):
    write(info.folder, 0, *samples(3))
    write(info.folder, 1, *samples(3, cpu_percent=100.0))
    found = usage(info)
    assert misfit(found, wire_routes.RunUsage) is None
    assert list(by_name(found)) == ["cpu", "memory", "received"]
    cpu = by_name(found)["cpu"]
    assert (cpu["x_label"], cpu["x"], cpu["ranks"]) == ("seconds", [0.0, 1.0, 2.0], None)
    assert (cpu["mean"], cpu["low"], cpu["high"]) == ([75.0] * 3, [50.0] * 3, [100.0] * 3)


def test_the_usage_has_a_line_for_each_rank_on_request(info):
    write(info.folder, 0, *samples(2))
    write(info.folder, 1, *samples(2, cpu_percent=100.0))
    found = usage(info, by_rank=True)
    assert misfit(found, wire_routes.RunUsage) is None
    assert by_name(found)["cpu"]["ranks"]["1"] == {"x": [0.0, 1.0], "mean": [100.0, 100.0]}


def test_damaged_records_are_skipped(info):
    strange = [{**SAMPLE, "time": time} for time in ("now", None, True, 1e400, 10**400)]
    write(info.folder, 0, "{", "[]", *strange, {**SAMPLE, "time": STARTED, "cpu_percent": "much"}, *samples(2))
    found = usage(info)
    assert found["notices"] == []
    assert by_name(found)["cpu"]["x"] == [0.0, 1.0]


def test_a_file_that_cannot_be_read_is_named(info):
    write(info.folder, 0, *samples(2))
    replaced(outside, info.folder / "usage" / "rank-1.jsonl")
    found = usage(info)
    assert [notice for notice in found["notices"] if "'usage/rank-1.jsonl' is " in notice]
    assert by_name(found)["cpu"]["mean"] == [50.0, 50.0]


def test_a_long_run_is_sampled(info, monkeypatch):
    monkeypatch.setattr(charts, "SAMPLE_BYTES", 20 * charts.BLOCK)
    write(info.folder, 0, *samples(20_000))
    cpu = by_name(usage(info))["cpu"]
    assert 100 < len(cpu["x"]) <= POINTS
    assert cpu["x"][-1] == pytest.approx(20_000, abs=200)


async def test_the_route_returns_the_usage(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "runs", BAD)
    write(folder, 0, {**SAMPLE, "time": 10.0})
    async with panel_server(tmp_path, monkeypatch) as server:
        found = await server.ask("GET", f"runs/{BAD}/usage?by_rank=1")
        assert misfit(found, wire_routes.RunUsage) is None
        assert list(by_name(found)["memory"]["ranks"]) == ["0"]
        await server.ask("GET", f"runs/{BAD}/usage?by_rank=many", 400)
        missing = await server.ask("GET", "runs/none/usage", 404)
        assert missing["code"] == "unknown"
