"""Tests that a damaged file in a run's folder or an invalid message does not affect other runs in the panel."""

import asyncio
import json
import os

import pytest
from farandole.driver.control.mailbox import MAILBOXES
from farandole.server.panel import wire, wire_routes

from tests.panel import panel_server
from tests.strange import (
    BAD,
    FILES,
    GOOD,
    RECORD,
    huge,
    limited_memory,
    loop,
    outside,
    pipe,
    replaced,
    values,
    write_run,
)
from tests.unit.server.panel.test_wire import misfit

pytestmark = pytest.mark.timeout(60)
SECONDS = 10
VIEW = {
    "id": BAD, "name": "", "status": "finished", "ended": True, "error": None, "notices": [], "backend": "torch",
    "size": 2, "elapsed": 9, "seconds_left": None, "progress": [], "samples_per_second": None,
    "reports": 0, "output_bytes": 0, "warnings": [], "sync": None, "series": [], "ranks": [],
}  # fmt: skip


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
async def server(tmp_path, monkeypatch, runs):
    async with panel_server(tmp_path, monkeypatch) as server, asyncio.timeout(5 * SECONDS):
        yield server


async def listed(server):
    """Check that the undamaged run can be opened, and return a dict of all listed runs by id."""
    page = await server.ask("GET", "runs")
    assert misfit(page, wire_routes.RunPage) is None
    detail = await server.ask("GET", f"runs/{GOOD}")
    assert detail["view"]["series"][0]["last"] == 0.5
    assert (await server.ask("GET", f"runs?text={GOOD}"))["total"] == 1
    found = {run["id"]: run for run in page["runs"]}
    assert GOOD in found
    return found


@pytest.mark.parametrize("make", FILES)
async def test_a_strange_run_json_is_named_in_the_list_of_the_panel(server, runs, make):
    replaced(make, write_run(runs, BAD) / "run.json")
    with limited_memory(2_000_000_000):
        found = await listed(server)
        assert f"run '{BAD}' cannot be read: " in found[BAD]["error"]
        assert found[BAD]["status"] == "lost"
        for path in ("", "/series", "/csv", "/logs/0"):
            told = await server.ask("GET", f"runs/{BAD}{path}", 404)
            assert told["message"] == found[BAD]["error"]


async def test_the_stream_says_why_a_run_cannot_be_read_and_continues(server, runs):
    replaced(pipe, write_run(runs, BAD) / "run.json")
    async with server.stream() as stream:
        log = {"run": BAD, "rank": 0, "worker": None, "offset": 0}
        await stream.watch(BAD, GOOD, logs=[log])
        told = await stream.until("problem", seconds=SECONDS)
        assert "'run.json' is not a regular file" in told["problem"]["message"]
        assert (await stream.known("run"))["id"] == GOOD


async def test_a_run_that_can_be_read_again_is_shown_again(server, runs):
    path = write_run(runs, BAD) / "run.json"
    replaced(loop, path)
    assert (await listed(server))[BAD]["error"]
    path.unlink()
    write_run(runs, BAD)
    assert (await listed(server))[BAD]["error"] is None


async def test_a_link_that_leads_to_itself_hides_no_run_of_the_panel(server, runs):
    loop(runs / "loop")
    await listed(server)


async def test_a_name_that_utf_8_cannot_encode_hides_no_run_of_the_panel(server, runs):
    write_run(runs, BAD, name="\ud800", error="\udcff", notices=["\ud800"])
    write_run(runs, os.fsdecode(b"20260101-\xff"))
    found = await listed(server)
    assert found[BAD]["name"] == "?"
    async with server.stream() as stream:
        assert (await stream.known("runs"))["total"] == 3


async def test_the_name_of_a_download_has_no_control_characters(server, runs):
    write_run(runs, "20260101\n-\x01")
    text = await server.ask("GET", "runs/20260101%0A-%01/csv")
    assert text.startswith("rank,time")


@pytest.mark.parametrize("number", ["9" * 300, "9" * 5000])
async def test_a_rank_or_offset_of_hundreds_of_digits_is_refused(server, number):
    assert (await server.ask("GET", f"runs/{GOOD}/logs/{number}", 404))["code"] == "unknown"
    for query in (f"runs/{GOOD}/logs/0?offset={number}", f"runs?limit={number}", f"runs?offset=-{number}"):
        told = await server.ask("GET", query, 400)
        assert (told["code"], misfit(told, wire.Problem)) == ("invalid", None)


@pytest.mark.parametrize(
    "log",
    [
        {"rank": 10**300},
        {"rank": -1},
        {"rank": True},
        {"offset": 10**300},
        {"offset": 1.5},
        {"run": "a" * 50_000},
        {"run": "\0"},
        {"run": "\ud800"},
        {"rank": None, "run": None, "worker": "\ud800"},
    ],
)
async def test_a_rank_of_300_digits_does_not_mute_a_stream(server, runs, log):
    async with server.stream() as stream:
        await stream.until("runs", seconds=SECONDS)
        await stream.watch(logs=[{"run": GOOD, "rank": 0, "worker": None, "offset": 0, **log}])
        told = await stream.until("problem", seconds=SECONDS)
        assert misfit(told, wire.ProblemMessage) is None
        write_run(runs, BAD)
        await stream.until("runs", lambda said: said["total"] == 2, seconds=SECONDS)


@pytest.mark.parametrize("message", ["[" * 50_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "[1]", "\0", "5"])
async def test_a_deeply_nested_message_does_not_close_a_stream(server, message):
    async with server.stream() as stream:
        await stream.socket.send_str(message)
        told = await stream.until("problem", seconds=SECONDS)
        assert "a page may send" in told["problem"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[" * 50_000, "the body is nested too deeply"),
        (b"\xff", "the body is not valid JSON"),
        ("{}" + " " * 200_000, "the body must be a JSON object of at most"),
        ('{"name": "a", "workers": 1' + "0" * 300, "the body is not valid JSON"),
    ],
)
async def test_a_deeply_nested_body_is_refused(server, body, message):
    for method, path in (("POST", "clusters"), ("PATCH", "clusters/main")):
        told = await server.ask(method, path, 400, data=body)
        assert message in told["message"]


@pytest.mark.parametrize("name", ["view.json", "lines.json"])
@pytest.mark.parametrize("make", FILES)
async def test_a_strange_view_is_replaced_by_samples_of_the_reports(server, runs, name, make):
    run = write_run(runs, BAD)
    (run / "view.json").write_text(json.dumps(VIEW))
    replaced(make, run / name)
    with limited_memory(2_000_000_000):
        detail = await server.ask("GET", f"runs/{BAD}?by_rank=1")
    assert misfit(detail, wire_routes.RunDetail) is None
    assert detail["view"]["series"][0]["last"] == 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"series": {}},
        {"ranks": [1]},
        {"progress": None},
        {"notices": [1]},
        {"warnings": "lost"},
        {"sync": {"mode": "local", "waiting": "long", "bytes_per_step": 1, "staleness": 0}},
        {"series": [{"name": "loss"}]},
        {"id": 1},
    ],
)
async def test_a_view_of_wrong_types_is_replaced_by_samples_of_the_reports(server, runs, changes):
    (write_run(runs, BAD) / "view.json").write_text(json.dumps({**VIEW, **changes}))
    detail = await server.ask("GET", f"runs/{BAD}")
    assert misfit(detail, wire_routes.RunDetail) is None
    assert detail["view"]["series"][0]["last"] == 0.5
    assert "loss" in await server.ask("GET", f"runs/{BAD}/csv")


@pytest.mark.parametrize("name", ["metrics/rank-0.jsonl", "usage/rank-0.jsonl", "logs/rank-0.log"])
@pytest.mark.parametrize("make", [pipe, loop, outside])
async def test_a_file_that_cannot_be_read_is_named_among_the_notices_of_its_run(server, runs, name, make):
    replaced(make, write_run(runs, BAD) / name)
    detail = await server.ask("GET", f"runs/{BAD}")
    named = [notice for notice in detail["view"]["notices"] if f"'{name}' is " in notice]
    assert named
    assert set(named) <= set(detail["view"]["warnings"])
    log = await server.ask("GET", f"runs/{BAD}/logs/0", 404 if name.startswith("logs/") else 200)
    csv = await server.ask("GET", f"runs/{BAD}/csv", 404 if name.startswith("metrics/") else 200)
    assert "root:" not in f"{log}{csv}"


async def test_a_name_that_utf_8_cannot_represent_is_replaced_in_a_download(server, runs):
    report = {**RECORD, "kind": "report", "rank": 0, "time": 1.0, "values": {"\ud800loss": 0.5}}
    (write_run(runs, BAD) / "metrics" / "rank-0.jsonl").write_text(json.dumps(report))
    assert "?loss" in await server.ask("GET", f"runs/{BAD}/csv")


@pytest.mark.parametrize("make", [huge, values])
async def test_a_download_of_reports_with_an_endless_line_is_refused_before_it_begins(server, runs, make):
    replaced(make, write_run(runs, BAD) / "metrics" / "rank-1.jsonl")
    error = await server.ask("GET", f"runs/{BAD}/csv", 404)
    assert "'metrics/rank-1.jsonl' has a line of more than 1 MiB" in error["message"]


@pytest.mark.parametrize("make", [pipe, loop, outside, *FILES])
async def test_strange_code_costs_the_panel_only_the_code(server, runs, make):
    replaced(make, write_run(runs, BAD) / "code.py")
    with limited_memory(2_000_000_000):
        detail = await server.ask("GET", f"runs/{BAD}")
    assert misfit(detail, wire_routes.RunDetail) is None
    assert "root:" not in detail["code"]


@pytest.mark.parametrize(
    "line", ['{"kind": "usage", "cpu_percent": [], "memory_bytes": "all"}', '{"kind": "usage", "gpu_percent": {}}']
)
async def test_strange_usage_costs_a_run_no_view(server, runs, line):
    (write_run(runs, BAD) / "usage" / "rank-0.jsonl").write_text(line + "\n")
    detail = await server.ask("GET", f"runs/{BAD}")
    assert misfit(detail, wire_routes.RunDetail) is None


async def test_reports_with_a_million_series_fill_no_memory(server, runs):
    lines = [
        json.dumps({**RECORD, "kind": "report", "rank": 0, "time": 1.0, "values": {f"{a}-{b}": 1 for b in range(1000)}})
        for a in range(400)
    ]
    (write_run(runs, BAD) / "metrics" / "rank-0.jsonl").write_text("\n".join(lines))
    with limited_memory(500_000_000):
        detail = await server.ask("GET", f"runs/{BAD}")
        await server.ask("GET", f"runs/{BAD}/csv")
    assert len(detail["view"]["series"]) <= 10_000


@pytest.mark.parametrize("make", FILES)
async def test_a_strange_status_of_a_driver_stops_no_update_of_the_panel(server, runs, make):
    (runs / MAILBOXES / "0123456789abcdef").mkdir(parents=True)
    replaced(make, runs / MAILBOXES / "0123456789abcdef" / "desk.json")
    async with server.stream() as stream:
        await stream.until("runs", seconds=SECONDS)
        write_run(runs, BAD)
        await stream.until("runs", lambda said: said["total"] == 2, seconds=SECONDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"driver": [1]},
        {"since": "now"},
        {"ranks": [["a", 1e999, True]]},
        {"workers": [{}]},
        {"runs": 5},
        {"wanted": "2"},
        {"dask": 5},
        {"dask": {}},
        {"dask": {"tasks": 1, "done": 1, "failed": 0, "workers": {"w": 5}}},
    ],
)
async def test_a_status_of_wrong_types_stops_no_update_of_the_panel(server, runs, changes):
    known = {
        "cluster": "main", "local": True, "backend": "torch", "notebook": "", "kernel": "k", "busy": False,
        "driver": {}, "since": 1.0, "workers": ["w"], "ranks": [["w", 0, True]], "runs": [],
        "wanted": None, "error": None,
    }  # fmt: skip
    for name, status in (("0123456789abcdef", {**known, **changes}), ("1123456789abcdef", known)):
        (runs / MAILBOXES / name).mkdir(parents=True)
        (runs / MAILBOXES / name / "desk.json").write_text(json.dumps(status))
    state = await server.ask("GET", "state")
    assert [one["name"] for one in state["clusters"]] == ["main"]
