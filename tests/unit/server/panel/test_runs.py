"""Tests for runs in the panel, including which files the server reads and how much data it sends."""

import asyncio
import csv
import io
import json
import os
import sys
from contextlib import contextmanager

import aiohttp
import pandas as pd
import pytest
from farandole.exceptions import RunNotFoundError
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.folder import this_process
from farandole.runs.series import POINTS
from farandole.runs.store import RunStore
from farandole.runs.view_files import LINES, VIEW
from farandole.server.panel import charts, files, wire, wire_routes
from farandole.server.panel.charts import Charts
from farandole.server.panel.files import csv_chunks, read_log
from farandole.server.panel.routes import runs as run_routes
from farandole.server.panel.runs import NEWEST, Filter, RunIndex

from tests.panel import panel_server
from tests.strange import write_run
from tests.unit.server.panel.test_wire import misfit

RANKS = 64
POINTS_OF_A_RUN = 100_000
ROW = {
    "state": "done", "cpu": None, "memory": None, "gpu": None, "gpu_memory": None, "gpu_memory_total": None,
    "samples_per_second": None, "step_seconds": None, "slowest": False, "model": None, "log": ["a last word"],
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


@pytest.fixture
def index(store, tmp_path):
    return RunIndex(store.folder, tmp_path / "home")


@pytest.fixture
async def server(tmp_path, monkeypatch):
    async with panel_server(tmp_path, monkeypatch) as server:
        yield server


def report(run, rank, step, /, **values):
    run.add_records(rank, report_to_json(Report(rank=rank, time=float(step), step=step, values=values)))


def finished(store, **options):
    known = {"code": "fd.report()", "backend": "torch", "size": 2, "workers": ["c-w0", "c-w1"], "cluster": "c"}
    run = store.create(**{**known, **options})
    for step in range(1000):
        for rank in range(2):
            report(run, rank, step, loss=1 / (step + 1), place=float(rank))
    run.add_log(1, "größer\n")
    run.finish(Status.FINISHED)
    return run


@contextmanager
def opened(folder):
    """Yield a list that collects the paths of all files below a folder that are opened during this context."""
    found, place = [], str(folder)
    _Watch.take = lambda path: found.append(path[len(place) + 1 :]) if path.startswith(place) else None
    try:
        yield found
    finally:
        _Watch.take = None


class _Watch:
    """An audit hook that calls ``take`` for each opened file. ``take`` can be unset, but hooks cannot be removed."""

    take = None

    @classmethod
    def hook(cls, event, arguments):
        if event == "open" and cls.take is not None and isinstance(arguments[0], str | os.PathLike):
            cls.take(os.fspath(arguments[0]))


sys.addaudithook(_Watch.hook)


def fill(folder, count):
    """Write runs with many reports from many ranks. Hard links to a single report file save space."""
    folder.mkdir(parents=True)
    reports = folder.parent / "reports.jsonl"
    line = '{"kind": "report", "rank": 0, "time": 1.0, "step": %d, "values": {"loss": 0.5}}\n'
    reports.write_text("".join(line % step for step in range(POINTS_OF_A_RUN)))
    xs = list(range(POINTS))
    series = {"name": "loss", "x_label": "step", "bad": 0, "bad_x": [], "last": 0.5, "ranks": None}
    flat = [0.5] * POINTS
    drawn = {**series, "x": xs, "mean": flat, "low": flat, "high": flat}
    lines = folder.parent / "lines.json"
    by_rank = {str(rank): {"x": xs, "mean": flat} for rank in range(RANKS)}
    lines.write_text(json.dumps({"series": [{**drawn, "ranks": by_rank}]}))
    rows = [{**ROW, "rank": rank, "worker": f"c-w{rank}"} for rank in range(RANKS)]
    for number in range(count):
        run = folder / f"20260101-{number:06d}-abcd"
        (run / "metrics").mkdir(parents=True)
        for rank in range(RANKS):
            (run / "metrics" / f"rank-{rank}.jsonl").hardlink_to(reports)
        known = {"id": run.name, "name": f"run {number}", "status": "finished", "started": number, "ended": number + 9}
        workers = [f"c-w{rank}" for rank in range(RANKS)]
        (run / "run.json").write_text(json.dumps({**known, "size": RANKS, "workers": workers}))
        view = {"id": run.name, "name": "", "status": "finished", "ended": True, "error": None, "notices": []}
        rest = {"backend": "torch", "size": RANKS, "elapsed": 9, "progress": [], "samples_per_second": None}
        (run / VIEW).write_text(json.dumps({**view, **rest, "series": [drawn], "ranks": rows}))
        (run / LINES).hardlink_to(lines)


async def test_500_runs_of_64_ranks_with_100_000_points_are_not_read(tmp_path, server):
    runs = tmp_path / "runs"
    fill(runs, 500)
    with opened(runs) as files_opened:
        state = await server.ask("GET", "state")
        async with server.stream() as stream:
            message = await stream.until("runs")
            await stream.watch(message["runs"][0]["id"])
            shown = await stream.until("run")
            await asyncio.sleep(2.5)
    assert (len(state["runs"]["runs"]), state["runs"]["total"]) == (NEWEST, 500)
    assert misfit(message, wire.RunsMessage) is None
    assert [one["id"] for one in message["runs"][:2]] == ["20260101-000499-abcd", "20260101-000498-abcd"]
    assert set(files_opened) == {*(f"{one['id']}/run.json" for one in message["runs"]), f"{shown['id']}/{VIEW}"}
    # If two threads request a file at the same time, both may read the file.
    assert len(files_opened) <= 2 * (NEWEST + 1)
    assert len(shown["view"]["series"][0]["x"]) == POINTS
    assert len(server.answers[0]) < 50_000
    assert sum(len(text) for text in server.answers) < 150_000
    # The run has not changed, so its message is not sent again.
    assert [one["kind"] for one in stream.heard].count("run") == 1
    with opened(runs) as files_opened:
        async with server.stream() as stream:
            await stream.watch(shown["id"], by_rank=True)
            by_rank = await stream.until("run")
    assert misfit(by_rank, wire.RunMessage) is None
    assert [len(line["x"]) for line in by_rank["view"]["series"][0]["ranks"].values()] == [POINTS] * RANKS
    assert len(by_rank["view"]["ranks"]) == RANKS
    assert len(server.answers[-1]) < 20 * POINTS * RANKS
    assert not [name for name in files_opened if "metrics" in name]
    with opened(runs) as files_opened:
        page = await server.ask("GET", "runs?offset=100&limit=20")
    assert misfit(page, wire_routes.RunPage) is None
    assert [one["name"] for one in page["runs"]] == [f"run {number}" for number in range(399, 379, -1)]
    assert len(files_opened) == 20
    with opened(runs) as files_opened:
        found = await server.ask("GET", "runs?text=RUN+7&limit=1000")
        assert found["total"] == 95
        assert len(found["runs"]) == 95
        assert len([name for name in files_opened if name.endswith("run.json")]) <= 500
        assert not [name for name in files_opened if not name.endswith("run.json")]
    with opened(runs) as files_opened:
        await server.ask("GET", "runs?text=RUN+7")
    assert not files_opened


def test_a_changed_run_is_read_again_and_nothing_else(store, index):
    first = finished(store)
    second = store.create(code="", backend="torch", size=1, workers=["c-w0"])
    second.flush()
    assert [one["id"] for one in index.newest(())["runs"]] == sorted([first.id, second.id], reverse=True)
    second.finish(Status.FAILED, "rank 0: oh")
    with opened(store.folder) as read:
        page = index.newest(())
    assert read == [f"{second.id}/run.json"]
    assert {one["id"]: one["status"] for one in page["runs"]}[second.id] == "failed"
    assert misfit(page, wire_routes.RunPage) is None


def test_a_run_without_a_driver_is_lost_or_active_if_ranks_compute(store, index):
    run = store.create(code="", backend="torch", size=1, workers=["c-w0"])
    run.let_go()
    path = run.folder / "run.json"
    assert index.newest(())["runs"][0]["status"] == "running"
    path.write_text(json.dumps({**json.loads(path.read_text()), "driver": {**this_process(), "started": 1.0}}))
    [lost] = index.newest(())["runs"]
    assert (lost["status"], lost["goes_on"], lost["seconds"] < 60) == ("lost", False, True)
    assert index.newest({run.id})["runs"][0]["goes_on"]
    charted = Charts().of(index.find(run.id), lost)
    assert (charted.view["ended"], charted.view["status"]) == (True, "lost")
    assert [row["state"] for row in charted.view["ranks"]] == ["stopped"]


def test_the_warnings_of_a_run_are_named_apart_from_its_other_notices(store, index):
    run = store.create(code="", backend="torch", size=1, workers=["c-w0"])
    run.notice("rank 0 was lost", warning=True)
    run.notice("rank 0 answers again")
    run.finish(Status.FINISHED)

    def warnings():
        view = Charts().of(index.find(run.id), index.newest(())["runs"][0]).view
        assert view["notices"] == ["rank 0 was lost", "rank 0 answers again"]
        return view["warnings"]

    assert warnings() == ["rank 0 was lost"]
    for name in ("view.json", "run.json"):
        path = run.folder / name
        older = {key: value for key, value in json.loads(path.read_text()).items() if key != "warnings"}
        path.write_text(json.dumps(older))
    assert warnings() == []


def test_old_active_runs_are_among_the_newest(store, index, monkeypatch):
    for number in range(NEWEST + 5):
        folder = store.folder / f"20260101-{number:06d}-abcd"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"id": folder.name, "status": "finished", "started": number}))
    (store.folder / "20270101-000000-torn").mkdir()
    ids = [one["id"] for one in index.newest({"20260101-000001-abcd"})["runs"]]
    assert ids[-1] == "20260101-000001-abcd"
    assert "20260101-000004-abcd" not in ids


@pytest.mark.parametrize("run", ["", ".", "..", "../runs", ".desks", "none"])
def test_invalid_names_of_runs_are_not_found(store, index, run):
    finished(store)
    with pytest.raises(RunNotFoundError, match="there is no run"):
        index.find(run)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(text="digits"), ["digits"]),
        (Filter(text="N.IPYNB dig"), ["digits"]),
        (Filter(status="failed"), ["bad"]),
        (Filter(status="finished", cluster="c"), ["digits"]),
        (Filter(text="oh"), ["bad"]),
        (Filter(text="nothing"), []),
    ],
)
def test_runs_are_filtered(store, index, tmp_path, wanted, found):
    from farandole.runs.origin import Origin

    known = {"code": "", "backend": "torch", "size": 1, "workers": ["c-w0"]}
    notebook = Origin(notebook=str(tmp_path / "home" / "n.ipynb"), kernel="k", cell="b0")
    store.create(**known, name="digits", cluster="c", origin=notebook).finish(Status.FINISHED)
    store.create(**known, name="bad", cluster="d").finish(Status.FAILED, "rank 0: oh")
    page = index.page(active=(), wanted=wanted)
    assert ([one["name"] for one in page["runs"]], page["total"]) == (found, len(found))
    for one in page["runs"]:
        if one["name"] == "digits":
            assert (one["notebook"], one["kernel"], one["cell"]) == ("n.ipynb", "k", "b0")


async def test_a_run_and_its_series(store, server):
    run = finished(store, name="first", options={"line": "--name first"}, versions={"torch": "2.13.0"})
    detail = await server.ask("GET", f"runs/{run.id}")
    assert misfit(detail, wire_routes.RunDetail) is None
    assert (detail["code"], detail["sampled"], detail["folder"]) == ("fd.report()", False, str(run.folder))
    assert detail["view"]["ranks"][1]["log"] == ["größer"]
    series = await server.ask("GET", f"runs/{run.id}/series?by_rank=1")
    assert misfit(series, wire_routes.RunSeries) is None
    [loss, place] = series["series"]
    assert len(loss["x"]) <= POINTS
    assert set(place["ranks"]["1"]["mean"]) == {1.0}
    assert detail["view"]["series"][0]["ranks"] is None


def test_a_run_without_a_short_version_is_charted_from_its_reports(store, index, monkeypatch):
    run = finished(store)
    summary = index.summary(index.find(run.id), ())
    left = {by_rank: Charts().of(index.find(run.id), summary, by_rank=by_rank) for by_rank in (False, True)}
    (run.folder / VIEW).unlink()
    (run.folder / LINES).unlink()
    for by_rank, chart in left.items():
        made = Charts().of(index.find(run.id), summary, by_rank=by_rank)
        assert made.view["series"] == chart.view["series"]
        assert not made.sampled
    monkeypatch.setattr(charts, "SAMPLE_BYTES", 40_000)
    monkeypatch.setattr(charts, "BLOCK", 1000)
    sampled = Charts().of(index.find(run.id), summary)
    assert sampled.sampled
    [loss, _] = sampled.view["series"]
    assert loss["last"] == left[False].view["series"][0]["last"]
    assert loss["x"][0] < 10
    assert len(loss["x"]) > 30


def test_an_incomplete_report_does_not_affect_the_rest_of_the_chart(store, index):
    run = finished(store)
    info = index.find(run.id)
    (info.folder / VIEW).unlink()
    with (info.folder / "metrics" / "rank-0.jsonl").open("a") as file:
        file.write('{"kind": "report"}\n{"kind": "report", "values": 3}\n')
    view = Charts().of(info, index.summary(info, ())).view
    assert [one["name"] for one in view["series"]] == ["loss", "place"]


def test_a_chart_without_ranks_does_not_depend_on_their_lines(store, index):
    info = index.find(finished(store).id)
    before = [Charts().version(info, by_rank=by_rank) for by_rank in (False, True)]
    os.utime(info.folder / LINES, (1.0, 1.0))
    after = [Charts().version(info, by_rank=by_rank) for by_rank in (False, True)]
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]


def test_a_long_run_without_a_short_version_is_read_in_parts(tmp_path, index):
    fill(tmp_path / "runs", 1)
    info = index.find("20260101-000000-abcd")
    (info.folder / VIEW).unlink()
    read = []
    take = charts._parsed
    charts._parsed = lambda lines: take([read.append(len(line)) or line for line in lines])
    try:
        chart = Charts().of(info, index.summary(info, ()))
    finally:
        charts._parsed = take
    assert chart.sampled
    assert sum(read) < charts.SAMPLE_BYTES
    assert misfit(chart.view, wire.RunView) is None
    assert chart.view["series"][0]["x"][-1] > POINTS_OF_A_RUN * 0.95


def test_logs_are_sent_in_parts_of_complete_characters(store, index, monkeypatch):
    run = finished(store)
    info = index.find(run.id)
    part = read_log(info, 1, 0, limit=4)
    assert misfit(part, wire.LogPart) is None
    assert (part["text"], part["next"], part["size"]) == ("grö", 4, 9)
    assert read_log(info, 1, 4)["text"] == "ßer\n"
    end = read_log(info, 1, -6)
    assert (end["offset"], end["text"]) == (4, "ßer\n"[-5:])
    assert read_log(info, 1, -4)["text"] == "er\n"
    assert read_log(info, 0, 0)["text"] == ""
    assert read_log(info, 1, 99)["offset"] == 9
    with pytest.raises(RunNotFoundError, match="has no rank 2; it has the ranks 0-1"):
        read_log(info, 2, 0)


async def test_the_csv_is_complete_and_streamed(store, server, monkeypatch):
    monkeypatch.setattr(files, "CHUNK_CELLS", 600)
    run = finished(store)
    text = await server.ask("GET", f"runs/{run.id}/csv")
    frame = pd.read_csv(io.StringIO(text))
    pd.testing.assert_frame_equal(frame, run.dataframe(), check_dtype=False, check_column_type=False)
    assert list(frame.columns) == ["rank", "time", "step", "epoch", "loss", "place"]


async def test_an_incomplete_csv_ends_with_an_error(store, server, monkeypatch):
    def torn(_info):
        yield "rank,time\n"
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(run_routes, "csv_chunks", torn)
    with pytest.raises(aiohttp.ClientError):
        await server.ask("GET", f"runs/{finished(store).id}/csv")


def test_an_incomplete_report_is_left_out_of_the_csv(store, index):
    run = store.create(code="", backend="torch", size=1, workers=["c-w0"])
    report(run, 0, 1, loss=2.0)
    run.flush()
    with (run.folder / "metrics" / "rank-0.jsonl").open("a") as file:
        file.write('{"kind": "report", "values": 3}\n{"kind": "report"}\n')
    rows = list(csv.reader(io.StringIO("".join(csv_chunks(index.find(run.id))))))
    assert rows == [["rank", "time", "step", "epoch", "loss"], ["0", "1.0", "1", "", "2.0"]]
    run.finish(Status.FINISHED)


def test_the_csv_of_an_active_run_has_all_columns(store, index):
    run = store.create(code="", backend="torch", size=2, workers=["c-w0", "c-w1"])
    report(run, 0, 1, loss=float("nan"))
    report(run, 1, 1, late=2.0)
    run.flush()
    rows = list(csv.reader(io.StringIO("".join(csv_chunks(index.find(run.id))))))
    assert rows == [
        ["rank", "time", "step", "epoch", "loss", "late"],
        ["0", "1.0", "1", "", "nan", ""],
        ["1", "1.0", "1", "", "", "2.0"],
    ]
    run.finish(Status.FINISHED)


def last_of(said):
    return [one["last"] for one in said["view"]["series"]]


async def test_a_run_led_elsewhere_is_followed_live_with_its_log(store, server):
    run = store.create(code="", backend="torch", size=1, workers=["c-w0"])
    async with server.stream() as stream:
        log = {"run": run.id, "rank": 0, "worker": None, "offset": 0}
        await stream.watch(run.id, "none", logs=[log])
        problem = await stream.until("problem")
        assert problem["problem"]["code"] == "unknown"
        for step in range(3):
            report(run, 0, step, loss=float(step))
            run.add_log(0, f"step {step}\n")
            await stream.until("run", lambda said, step=step: last_of(said) == [step])
        run.finish(Status.FINISHED)
        last = await stream.until("run", lambda said: said["view"]["ended"])
        assert misfit(last, wire.RunMessage) is None
        await stream.known("runs", lambda said: said["runs"][0]["status"] == "finished")
        while not stream.log().endswith("step 2\n"):
            await stream.until("log")
    assert stream.log() == "step 0\nstep 1\nstep 2\n"
    # The stream reports the missing run only once.
    assert [one["kind"] for one in stream.heard].count("problem") == 1


async def test_a_forbidden_subscription_is_refused_and_the_stream_continues(server):
    both = {"run": "r", "rank": 0, "worker": "w", "offset": 0}
    wrong = [
        "no JSON",
        "[]",
        '{"kind": "dance"}',
        '{"kind": "watch", "runs": []}',
        '{"kind": "watch", "seen": true, "runs": [1], "by_rank": false, "logs": []}',
        json.dumps({"kind": "watch", "seen": True, "runs": [], "by_rank": False, "logs": [both]}),
        json.dumps({"kind": "watch", "seen": True, "runs": ["r"] * 51, "by_rank": False, "logs": []}),
        json.dumps({"kind": "watch", "seen": True, "runs": [], "followed": ["r"] * 51, "by_rank": False, "logs": []}),
        json.dumps({"kind": "watch", "seen": True, "runs": [], "followed": [1], "by_rank": False, "logs": []}),
    ]
    async with server.stream() as stream:
        for text in wrong:
            await stream.socket.send_str(text)
            assert (await stream.until("problem"))["problem"]["code"] == "invalid"
        await stream.watch()
        await stream.known("runs")


def test_the_list_has_the_beginnings_of_names_and_errors(tmp_path):
    notebook = f"/{'n' * 900}.ipynb"
    run = write_run(tmp_path, "20260102-000000-abcd", name="a" * 900, error="b" * 900, notebook=notebook).name
    index = RunIndex(tmp_path, tmp_path / "home")
    for listed in (index.newest(()), index.page(active=(), wanted=Filter())):
        [row] = listed["runs"]
        assert (row["name"], row["error"]) == ("a" * 199 + "…", "b" * 199 + "…")
        assert row["notebook"] == notebook
    summary = index.summary(index.find(run), ())
    assert (summary["name"], summary["error"]) == ("a" * 900, "b" * 900)
