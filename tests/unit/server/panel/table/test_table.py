"""Tests for the table of runs: its rows, its order, what it reads, and the changes that users make in it."""

import errno
import json
import math
import os
import shutil
import threading
import time
import uuid
from collections import Counter

import pytest
from farandole.driver.control.mailbox import MAILBOXES
from farandole.exceptions import RunNotFoundError, UsageError
from farandole.protocol import DELETED_RUNS, Status
from farandole.runs.folder import this_process
from farandole.runs.lifecycle.heartbeat import SILENT_SECONDS
from farandole.runs.lifecycle.lock import LOCK, changing
from farandole.runs.lifecycle.tombstones import is_deleted
from farandole.runs.notes import change_notes
from farandole.runs.store import RunStore
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire, wire_routes
from farandole.server.panel.charts import Charts
from farandole.server.panel.problems import RefusedError
from farandole.server.panel.runs import Filter, RunIndex
from farandole.server.panel.table import disk_use, values
from farandole.server.panel.table.deletion import DELETED, remove_leftovers
from farandole.server.panel.table.table import Table

from tests.panel import DEADLINE, panel_server
from tests.strange import BAD, FILES, GOOD, limited_memory, replaced, write_run
from tests.unit.server.panel.test_runs import opened
from tests.unit.server.panel.test_wire import misfit

EVERY = Filter()
EDIT = {"name": None, "tags": None, "notes": None}


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def table(runs, tmp_path):
    return Table(RunIndex(runs, tmp_path / "home"), Charts())


@pytest.fixture
async def server(tmp_path, monkeypatch, runs):
    async with panel_server(tmp_path, monkeypatch) as server:
        yield server


def part(table, wanted=EVERY, *, active=(), **options):
    """Return a page of the table, from which values may be missing."""
    found = table.page(active=active, wanted=wanted, **options)
    assert misfit(json.loads(json.dumps(found)), wire_routes.RunTable) is None
    return found


def page(table, wanted=EVERY, **options):
    """Return a complete page of the table. Ask again until it is complete, as the page in the browser does."""
    give_up = time.monotonic() + DEADLINE
    while not (found := part(table, wanted, **options))["complete"]:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return found


def cells(found, place=0):
    """Return the values of a row by column."""
    return dict(zip(found["columns"], found["runs"][place]["values"], strict=True))


def series_cells(last, lowest, highest, name="loss"):
    """Return the values of a series by column."""
    return {f"series.{name}.last": last, f"series.{name}.lowest": lowest, f"series.{name}.highest": highest}


def ids(found):
    return [row["id"] for row in found["runs"]]


def left(runs):
    """Return the names in a run store, without the lock and the marks of deleted runs."""
    return [path.name for path in sorted(runs.iterdir()) if path.name not in {LOCK, DELETED_RUNS}]


def settle():
    """Wait until the threads of all tables have done their jobs."""
    give_up = time.monotonic() + DEADLINE
    while [thread for thread in threading.enumerate() if thread.name.startswith("farandole-table")]:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def view(run, **means):
    """Return the view of a finished run with a series for each list of means."""
    rest = {"x_label": "step", "bad": 0, "bad_x": [], "ranks": None}
    series = [
        {
            "name": name,
            "last": None if math.isnan(mean[-1]) else mean[-1],
            "x": list(range(len(mean))),
            "mean": mean,
            "low": mean,
            "high": mean,
            **rest,
        }
        for name, mean in means.items()
    ]
    known = {"id": run, "name": "", "status": "finished", "ended": True, "error": None, "notices": [], "ranks": []}
    more = {"backend": "torch", "size": 2, "elapsed": 9, "progress": [], "samples_per_second": None}
    return json.dumps({**known, **more, "series": series})


def some_runs(runs):
    """Write three runs, of which only two have a view and a configuration."""
    shutil.rmtree(runs / GOOD)
    for number, (rate, loss) in enumerate([(0.1, [3.0, 0.5, None, 1.0]), ("auto", [2.0, float("nan")])]):
        run = f"20260101-00000{number}-aaaa"
        config = {"lr": rate, "deep": number == 0}
        folder = write_run(runs, run, started=1000.0 + number, ended=1020.0 - number, size=2 - number, config=config)
        (folder / VIEW).write_text(view(run, **{"loss.train": loss}))
    folder = write_run(runs, "20260101-000002-aaaa", name="", cluster="", started=1002.0, ended=1003.0, size=0)
    (folder / VIEW).write_text(view(folder.name))
    return left(runs)


def test_a_row_has_values_config_notes_and_disk_use(table, runs):
    first, second, third = some_runs(runs)
    change_notes(runs / first, {"name": "best", "tags": ["paper"], "notes": "lr was right"})
    found = page(table)
    assert ids(found) == [third, second, first]
    row = found["runs"][2]
    assert (row["name"], row["tags"], row["notes"]) == ("best", ["paper"], "lr was right")
    assert cells(found, 2) == {**series_cells(1.0, 0.5, 3.0, "loss.train"), "config.deep": True, "config.lr": 0.1}
    assert row["bytes"] == sum(path.stat().st_size for path in (runs / first).rglob("*") if path.is_file())
    assert cells(found, 1) == {**series_cells(None, 2.0, 2.0, "loss.train"), "config.deep": False, "config.lr": "auto"}
    assert set(cells(found, 0).values()) == {None}
    assert (found["total"], found["series"], found["config"], found["tags"]) == (
        3,
        ["loss.train"],
        ["deep", "lr"],
        ["paper"],
    )
    assert ids(page(table, offset=1, limit=1)) == [second]


@pytest.mark.parametrize(
    ("column", "ascending", "descending"),
    [
        ("started", "012", "210"),
        ("seconds", "210", "012"),
        ("size", "210", "012"),
        ("name", "012", "102"),
        ("cluster", "102", "102"),
        ("status", "210", "210"),
        ("config.lr", "012", "102"),
        ("config.deep", "102", "012"),
        ("config.none", "210", "210"),
        ("series.loss.train.last", "021", "021"),
        ("series.loss.train.lowest", "012", "102"),
        ("series.loss.train.highest", "102", "012"),
        ("series.none.last", "210", "210"),
    ],
)
def test_rows_without_a_value_come_last_in_either_direction(table, runs, column, ascending, descending):
    some_runs(runs)
    for order, down in ((ascending, False), (descending, True)):
        found = ids(page(table, sort=column, descending=down))
        assert "".join(run[14] for run in found) == order


@pytest.fixture
def slow(monkeypatch):
    """Let each read of a view or of a folder's size wait, except the first ones. Return the names of the runs."""
    reads, enough = [], threading.Event()
    free = threading.Semaphore(100)
    view_of, size_of = values.read_view, disk_use._size

    def waiting(read):
        def slowly(folder, *rest):
            if not free.acquire(blocking=False):
                assert enough.wait(DEADLINE)
            reads.append(folder.name)
            return read(folder, *rest)

        return slowly

    monkeypatch.setattr(values, "read_view", waiting(view_of))
    monkeypatch.setattr(disk_use, "_size", waiting(size_of))
    yield reads, enough
    enough.set()
    settle()


def many_runs(runs, count):
    """Write runs whose losses and sizes grow with their ids."""
    shutil.rmtree(runs / GOOD)
    for number in range(count):
        folder = write_run(runs, f"20260101-{number:06d}-aaaa")
        (folder / VIEW).write_text(view(folder.name, loss=[float(number)]))
        (folder / "more").write_bytes(bytes(1_000 * number))


@pytest.mark.parametrize("column", ["series.loss.lowest", "bytes"])
def test_a_sorted_page_does_not_wait_until_all_values_are_read(table, runs, slow, column):
    many_runs(runs, 300)
    reads, enough = slow
    begun = time.monotonic()
    found = part(table, sort=column, limit=5)
    assert time.monotonic() - begun < DEADLINE / 2
    assert (found["complete"], found["total"], len(found["runs"])) == (False, 300, 5)
    assert len(reads) <= 100
    # The newest runs are read first, so the oldest are not known yet and come last.
    [last] = ids(part(table, sort=column, limit=1, offset=299))
    assert last == "20260101-000000-aaaa"
    enough.set()
    found = page(table, sort=column, limit=5)
    assert ids(found) == [f"20260101-{number:06d}-aaaa" for number in range(299, 294, -1)]
    settle()
    assert max(Counter(reads).values()) <= 2
    found = page(table, sort=column, descending=False, limit=2)
    assert [cells(found, place)["series.loss.lowest"] for place in (0, 1)] == [0.0, 1.0]


def test_the_rows_on_the_page_are_read_before_all_others(table, runs, slow):
    many_runs(runs, 300)
    part(table, sort="series.loss.lowest", limit=5)
    reads, enough = slow
    part(table, sort="name", descending=False, limit=5)
    enough.set()
    settle()
    assert reads.index("20260101-000004-aaaa") < reads.index("20260101-000150-aaaa")


def test_the_best_value_of_a_view_is_no_mean(table, runs):
    folder = write_run(runs, BAD)
    content = json.loads(view(BAD, loss=[2.0, 1.0, 1.5]))
    [series] = content["series"]
    series |= {"low": [2.0, -7.0, 1.5], "high": [2.0, 1.0, 9.0]}
    for more, lowest, highest in (({}, -7.0, 9.0), ({"lowest": -8.0, "highest": None}, -8.0, None)):
        (folder / VIEW).write_text(json.dumps({**content, "series": [{**series, **more}]}))
        assert cells(page(table)) == series_cells(1.5, lowest, highest)


def test_a_series_without_a_name_has_columns(table, runs):
    write_run(runs, GOOD)
    other = write_run(runs, "20260101-000002-aaaa")
    (other / VIEW).write_text(view(other.name, **{"": [5.0]}))
    assert cells(page(table)) == {**series_cells(None, None, None, "loss"), **series_cells(5.0, 5.0, 5.0, "")}
    assert ids(page(table, sort="series..last", descending=False)) == [other.name, GOOD]


def test_rows_are_sorted_by_disk_use(table, runs):
    some_runs(runs)
    (runs / "20260101-000001-aaaa" / "large").write_bytes(bytes(100_000))
    found = page(table, sort="bytes")
    assert ids(found)[0] == "20260101-000001-aaaa"
    assert found["runs"][0]["bytes"] > 100_000
    (runs / "20260101-000000-aaaa" / "larger").write_bytes(bytes(200_000))
    page(table, sort="bytes")
    settle()
    assert ids(page(table, sort="bytes"))[0] == "20260101-000000-aaaa"


@pytest.mark.parametrize("column", ["none", "series.loss", "series.loss.mean", "notes", "__class__", "a" * 300])
def test_an_unknown_column_is_named(table, column):
    with pytest.raises(UsageError, match=f"there is no column '{column[:100]}'; sort by name, "):
        table.page(active=(), wanted=EVERY, sort=column)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(text="lr=0.1"), "0"),
        (Filter(text="LR=auto"), "1"),
        (Filter(text="deep=true"), "0"),
        (Filter(text="PAPER"), "0"),
        (Filter(text="was right best"), "0"),
        (Filter(text="aaaa"), "210"),
        (Filter(tag="paper"), "0"),
        (Filter(tag="pape"), ""),
        (Filter(cluster="c"), "10"),
        (Filter(status="failed"), ""),
    ],
)
def test_rows_are_filtered_by_what_the_user_wrote_and_configured(table, runs, wanted, found):
    first, *_ = some_runs(runs)
    change_notes(runs / first, {"name": "best", "tags": ["paper"], "notes": "lr was right"})
    shown = page(table, wanted)
    assert "".join(run[14] for run in ids(shown)) == found
    assert (shown["total"], shown["config"], shown["tags"]) == (len(found), ["deep", "lr"], ["paper"])


def test_a_large_configuration_is_cut(table, runs):
    write_run(runs, BAD, config={"long": "a" * 999, "none": None, **{f"p{number}": number for number in range(99)}})
    found = page(table, limit=1, added=["config.long", "config.none", "config.p47", "config.p98"])
    assert len(found["config"]) == 50
    assert found["columns"][:2] == ["series.loss.last", "series.loss.lowest"]
    assert found["columns"][3:11] == [
        f"config.{name}" for name in sorted(["long", "none", *map("p{}".format, range(48))])[:8]
    ]
    values = cells(found)
    assert (values["config.long"], values["config.none"], values["config.p47"], values["config.p98"]) == (
        "a" * 200, "None", 47, None
    )  # fmt: skip
    for name in found["config"]:
        assert len(page(table, sort=f"config.{name}")["runs"]) == 2


@pytest.mark.parametrize("value", [[1], float("nan"), 10**400, "a" * 9_999])
def test_a_run_with_an_invalid_configuration_is_in_the_table_without_it(table, runs, value):
    write_run(runs, BAD, config={"lr": value})
    found = page(table, limit=1)
    [row] = found["runs"]
    assert (row["id"], found["config"]) == (BAD, [])
    assert "run.json" in row["error"]


@pytest.mark.parametrize("make", FILES)
def test_a_run_with_a_strange_view_gets_its_values_from_reports(table, runs, make):
    replaced(make, write_run(runs, BAD) / VIEW)
    with limited_memory(2_000_000_000):
        found = page(table)
    assert [cells(found, place) for place in (0, 1)] == [series_cells(0.5, 0.5, 0.5)] * 2


@pytest.mark.parametrize("make", FILES)
def test_a_run_that_cannot_be_read_is_in_the_table_and_can_be_deleted(table, runs, make):
    replaced(make, write_run(runs, BAD) / "run.json")
    with limited_memory(2_000_000_000):
        row = page(table)["runs"][0]
        assert f"run '{BAD}' cannot be read" in row["error"]
        table.delete(BAD, ())
    assert ids(page(table)) == [GOOD]
    assert left(runs) == [GOOD]


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_run_is_not_deleted_while_its_file_cannot_be_read(table, runs, monkeypatch, number):
    def fails(_folder, _name):
        raise OSError(number, os.strerror(number), "run.json")

    monkeypatch.setattr("farandole.runs.folder.read_json", fails)
    assert page(table)["runs"][0]["status"] == "lost"
    with pytest.raises(RefusedError, match=f"may be in progress.*: {os.strerror(number)}; try again") as refused:
        table.delete(GOOD, ())
    assert refused.value.code == "failed"
    monkeypatch.undo()
    assert ids(page(table)) == [GOOD]
    table.delete(GOOD, ())
    assert ids(page(table)) == []


def test_a_run_in_progress_is_not_deleted(table, runs):
    write_run(runs, BAD, status="running", ended=None, driver=this_process())
    write_run(runs, "lost", status="running", ended=None, driver={**this_process(), "started": 1.0})
    for run in (BAD, "lost"):
        with pytest.raises(RefusedError, match=f"run {run} is in progress; stop it before") as refused:
            table.delete(run, {"lost"})
        assert (refused.value.code, refused.value.runs) == ("runs_go_on", [run])
        assert (runs / run / "run.json").exists()
    table.delete("lost", ())
    assert ids(page(table)) == [BAD, GOOD]


def test_a_run_of_another_host_is_deleted_only_after_its_driver_was_silent_for_long(table, runs):
    elsewhere = {"host": "another-container", "pid": 1, "started": 1.0}
    folder = write_run(runs, BAD, status="running", ended=None, driver=elsewhere)
    with pytest.raises(RefusedError, match=f"run {BAD} is in progress"):
        table.delete(BAD, ())
    then = time.time() - SILENT_SECONDS - 60
    os.utime(folder / "run.json", (then, then))
    with pytest.raises(RefusedError, match=f"run {BAD} is in progress"):
        table.delete(BAD, {BAD})
    table.delete(BAD, ())
    assert is_deleted(folder)
    assert ids(page(table)) == [GOOD]


def test_a_lost_run_is_not_deleted_while_its_workers_do_not_answer(table, runs):
    write_run(runs, "lost", status="running", ended=None, driver={**this_process(), "started": 1.0})
    with pytest.raises(
        RefusedError, match="may be in progress, so it is not deleted: worker c-w0 does not answer; try"
    ):
        table.delete("lost", (), lambda cluster: f"worker {cluster}-w0 does not answer")
    table.delete(GOOD, (), lambda _: "the hub does not answer")
    assert ids(page(table)) == ["lost"]


def test_a_run_that_a_driver_takes_over_is_not_deleted_at_the_same_time(table, runs):
    write_run(runs, "lost", status="running", ended=None, driver={**this_process(), "started": 1.0})
    errors = []

    def delete():
        try:
            table.delete("lost", ())
        except RefusedError as error:
            errors.append(str(error))

    deletion = threading.Thread(target=delete, name="deletion")
    with changing(runs):
        deletion.start()
        deletion.join(0.2)
        # What `RunStore.resume` does while it has the lock.
        write_run(runs, "lost", status="running", ended=None, driver=this_process())
    deletion.join(DEADLINE)
    assert errors == ["run lost is in progress; stop it before you delete it"]
    assert ids(page(table)) == ["lost", GOOD]


def test_a_run_is_not_deleted_while_a_run_resumed_from_it_is_in_progress(table, runs):
    write_run(runs, "lost", status="running", ended=None, driver={**this_process(), "started": 1.0}, resumed_from=GOOD)
    write_run(runs, BAD, resumed_from=GOOD)
    with pytest.raises(RefusedError, match=f"run lost is in progress and was resumed from run {GOOD}") as refused:
        table.delete(GOOD, {"lost"})
    assert (refused.value.code, refused.value.runs) == ("runs_go_on", ["lost"])
    assert (runs / GOOD / "run.json").exists()
    table.delete(BAD, {"lost"})
    table.delete(GOOD, ())
    assert ids(page(table)) == ["lost"]


def test_only_the_link_to_a_run_outside_the_store_is_deleted(table, runs, tmp_path):
    outside = write_run(tmp_path / "elsewhere", BAD)
    (runs / BAD).symlink_to(outside)
    (runs / GOOD / "link").symlink_to(outside)
    assert page(table, sort="bytes")["runs"][1]["bytes"] == 0
    for run in (BAD, GOOD):
        table.delete(run, ())
    assert not left(runs)
    assert (outside / "run.json").exists()


@pytest.mark.parametrize("run", ["none", "", ".", "..", "../runs", MAILBOXES, "\0"])
def test_nothing_but_a_run_is_deleted(table, runs, run):
    (runs / MAILBOXES).mkdir()
    before = left(runs)
    with pytest.raises(RunNotFoundError):
        table.delete(run, ())
    assert left(runs) == before
    assert not (runs / DELETED_RUNS).exists()


def test_a_failed_deletion_says_why(table, runs, monkeypatch):
    def fails(_path, *_rest):
        raise PermissionError(13, "Permission denied", str(runs / GOOD / "code.py"))

    monkeypatch.setattr("pathlib.Path.rename", fails)
    with pytest.raises(RefusedError, match=r"nothing has changed: 'code.py': Permission denied; check"):
        table.delete(GOOD, ())
    assert ids(page(table)) == [GOOD]
    assert not is_deleted(runs / GOOD)
    monkeypatch.undo()
    monkeypatch.setattr("shutil.rmtree", fails)
    with pytest.raises(RefusedError, match=r"no longer listed, but .* removed: 'code.py': Permission denied; correct"):
        table.delete(GOOD, ())
    assert ids(page(table)) == []
    monkeypatch.undo()
    [name] = left(runs)
    assert name.startswith(DELETED)
    remove_leftovers(runs)
    assert not left(runs)


def test_notes_that_cannot_be_written_are_refused_with_the_reason(table, runs, monkeypatch):
    def full(_path, _data, **_options):
        raise OSError(28, "No space left on device", "notes.json")

    monkeypatch.setattr("farandole.runs.notes.write_atomically", full)
    with pytest.raises(RefusedError, match="'notes.json': No space left on device; check the free space"):
        table.change(GOOD, {**EDIT, "name": "new"}, ())


@pytest.mark.parametrize(
    ("edit", "before", "message"),
    [
        (
            {"name": "new"},
            {"name": GOOD},
            "the name of run .* was changed elsewhere .*, to 'theirs'; your",
        ),
        ({"tags": ["new"]}, {"tags": []}, "the tags of run .* were changed elsewhere .*, to 'a, b'; your"),
        (
            {"notes": "new"},
            {"notes": ""},
            "the notes of run .* were changed elsewhere .*, to 'their notes'; your",
        ),
    ],
)
def test_a_text_that_was_changed_elsewhere_is_not_replaced(table, runs, edit, before, message):
    table.change(GOOD, {**EDIT, "name": "theirs", "tags": ["a", "b"], "notes": "their notes"}, ())
    with pytest.raises(RefusedError, match=message) as refused:
        table.change(GOOD, {**EDIT, **edit, "before": {**EDIT, **before}}, ())
    assert refused.value.code == "changed"
    [row] = page(table)["runs"]
    assert (row["name"], row["tags"], row["notes"]) == ("theirs", ["a", "b"], "their notes")


@pytest.mark.parametrize(
    "before",
    [
        {"name": "theirs", "tags": ["a"], "notes": "their notes"},
        {**EDIT, "name": "theirs"},
        {"tags": ["a"]},
        {"notes": None},
        {},
        None,
    ],
)
def test_a_text_is_replaced_if_the_page_has_shown_it(table, before):
    table.change(GOOD, {"name": "theirs", "tags": ["a"], "notes": "their notes"}, ())
    row = table.change(GOOD, {"name": "own", "tags": ["b"], "notes": "own notes", "before": before}, ())
    assert (row["name"], row["tags"], row["notes"]) == ("own", ["b"], "own notes")


def test_changes_of_other_texts_and_equal_changes_are_no_conflict(table):
    table.change(GOOD, {"tags": ["theirs"]}, ())
    table.change(GOOD, {"notes": "own", "before": {"name": GOOD, "tags": [], "notes": ""}}, ())
    row = table.change(GOOD, {"tags": ["theirs"], "before": {"tags": []}}, ())
    assert (row["tags"], row["notes"]) == (["theirs"], "own")


@pytest.mark.parametrize("before", ["text", ["list"], 1])
def test_an_invalid_text_before_the_change_is_refused(table, before):
    with pytest.raises(UsageError, match="`before` must be an object with the values that the change replaces"):
        table.change(GOOD, {"name": "new", "before": before}, ())


def test_a_series_is_read_again_only_after_a_change(table, runs):
    first, *_ = some_runs(runs)
    page(table)
    settle()
    (runs / first / VIEW).write_text(view(first, loss=[4.0]))
    with opened(runs) as read:
        page(table)
        settle()
        found = page(table)
        settle()
    assert read == [f"{first}/{VIEW}"]
    assert cells(found, 2) == {**series_cells(4.0, 4.0, 4.0), **cells(found, 2)}


async def test_a_run_is_renamed_tagged_and_deleted_by_the_routes(server, runs):
    row = await server.ask("PATCH", f"runs/{GOOD}", json={**EDIT, "name": "<b>best</b>", "tags": ["paper"]})
    assert misfit(row, wire_routes.RunRow) is None
    assert (row["name"], row["tags"]) == ("<b>best</b>", ["paper"])
    table = await server.ask("GET", "table?tag=paper&sort=series.loss.last&descending=1&offset=0&limit=9")
    assert misfit(table, wire_routes.RunTable) is None
    assert [one["name"] for one in table["runs"]] == ["<b>best</b>"]
    assert (await server.ask("GET", "runs"))["runs"][0]["name"] == "<b>best</b>"
    assert (await server.ask("GET", f"runs/{GOOD}"))["view"]["name"] == "<b>best</b>"
    damaged = runs / GOOD / "notes.json"
    await server.ask("PATCH", f"runs/{GOOD}", json={**EDIT, "notes": "line 1\nline 2"})
    detail = await server.ask("GET", f"runs/{GOOD}")
    assert misfit(detail, wire_routes.RunDetail) is None
    assert (detail["summary"]["name"], detail["tags"], detail["notes"]) == (
        "<b>best</b>", ["paper"], "line 1\nline 2"
    )  # fmt: skip
    stale = {**EDIT, "notes": "own", "before": {**EDIT, "notes": ""}}
    refused = await server.ask("PATCH", f"runs/{GOOD}", 409, json=stale)
    assert (refused["code"], misfit(refused, wire.Problem)) == ("changed", None)
    kept = damaged.read_text()
    damaged.write_text("{")
    assert (await server.ask("GET", f"runs/{GOOD}"))["notes"] == ""
    assert damaged.read_text() == "{"
    damaged.write_text(kept)
    for body in ({"tags": ["a" * 10_000]}, {"name": 1}, {"status": "failed"}, {"before": 1}):
        refused = await server.ask("PATCH", f"runs/{GOOD}", 400, json=body)
        assert (refused["code"], misfit(refused, wire.Problem)) == ("invalid", None)
    refused = await server.ask("GET", "table?sort=other", 400)
    assert (refused["code"], "'other'" in refused["message"]) == ("invalid", True)
    write_run(runs, BAD, status="running", ended=None, driver=this_process())
    refused = await server.ask("DELETE", f"runs/{BAD}", 409)
    assert (refused["code"], refused["runs"]) == ("runs_go_on", [BAD])
    assert await server.ask("DELETE", f"runs/{GOOD}", 204) == ""
    for method, body in (("PATCH", EDIT), ("DELETE", None)):
        assert (await server.ask(method, f"runs/{GOOD}", 404, json=body))["code"] == "unknown"
    await server.ask("DELETE", f"runs/{BAD}/series", 405)
    assert left(runs) == [BAD]


async def test_leftovers_are_removed_when_a_server_starts(tmp_path, monkeypatch, runs):
    (runs / GOOD).rename(runs / f"{DELETED}0123")
    (runs / f"{DELETED}link").symlink_to(tmp_path)
    async with panel_server(tmp_path, monkeypatch):
        [thread] = [one for one in threading.enumerate() if one.name == "farandole-leftovers"] or [None]
        if thread is not None:
            thread.join(DEADLINE)
    assert not left(runs)
    assert tmp_path.exists()


def test_a_run_is_changed_while_it_goes_on(table, runs):
    run = RunStore(runs).create(code="", backend="torch", size=1, workers=["c-w0"], name="digits")
    assert table.change(run.id, {"name": "best"}, ())["status"] == "running"
    run.finish(Status.FINISHED)
    [row] = page(table, Filter(text="digits"))["runs"]
    assert (row["name"], row["status"]) == ("best", "finished")


@pytest.mark.release
async def test_5_000_runs_are_read_once_and_their_first_rows_are_small(tmp_path, runs, server):
    names = [f"series-{number}" for number in range(20)]
    config = {"lr": 0.1, "batch": 32, "optimizer": "sgd"}
    where = {"notebook": "/home/ada/work/digits.ipynb", "kernel": str(uuid.uuid4()), "cell": str(uuid.uuid4())}
    for number in range(5_000):
        run = f"20260102-{number:06d}-abcd"
        folder = write_run(runs, run, name=f"digits {number}", config=config, **where)
        (folder / VIEW).write_text(view(run, **{name: [float(f"{number / 7:.6g}")] * 20 for name in names}))
    with opened(runs) as read:
        table = await server.ask("GET", "table")
        settle()
    assert (len(table["runs"]), table["total"], len(server.answers[-1]) < 200_000) == (50, 5_001, True)
    # The list of runs in the side bar may read a run.json at the same time.
    assert max(Counter(read).values()) <= 2
    assert max(count for name, count in Counter(read).items() if name.endswith(VIEW)) == 1
    with opened(runs) as read:
        again = await server.ask("GET", "table")
        await server.ask("GET", "table?sort=series.series-3.highest&limit=100")
        settle()
    assert not read
    assert again["series"] == sorted([*names, "loss"])
    assert len(server.answers[-1].encode()) <= 200_000
