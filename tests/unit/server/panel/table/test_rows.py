"""Tests for the size of the pages of the table, and for the columns that they contain."""

import json
import time

import pytest
from farandole.exceptions import UsageError
from farandole.runs.notes import LONGEST_NAME, LONGEST_STORED_NOTES, LONGEST_TAG, MOST_TAGS, change_notes
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire_routes
from farandole.server.panel.charts import Charts
from farandole.server.panel.runs import Filter, RunIndex
from farandole.server.panel.table.columns import MOST_ADDED
from farandole.server.panel.table.rows import MOST_BYTES, MOST_ROWS, WHOLE_NAME, listed, shortened
from farandole.server.panel.table.table import Table

from tests.panel import DEADLINE, panel_server
from tests.strange import BAD, write_run
from tests.unit.server.panel.table.test_table import EDIT, cells, ids, page, settle, view
from tests.unit.server.panel.test_wire import misfit

COUNT = 200
WIDE = "\N{DUCK}"
"""A character of four bytes."""
CONTROL = "\x01"
"""A character of which JSON makes six bytes."""
LETTER = "\N{CUNEIFORM SIGN A}"
"""A letter of four bytes, of which names of hyper-parameters may consist."""


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def table(runs, tmp_path):
    return Table(RunIndex(runs, tmp_path / "home"), Charts())


def names(count, letter, length):
    """Return names of this length that differ in their first characters."""
    return [
        f"{chr(ord('a') + number // 26)}{chr(ord('a') + number % 26)}".ljust(length, letter) for number in range(count)
    ]


def write_large(runs, number):
    """Write a run with the longest texts that its user can give it, and with numbers of the most digits."""
    run, digits = f"20260102-{number:06d}-abcd", -1.2345678901234567e-308
    config = dict.fromkeys(names(50, LETTER, 100), WIDE * 1_000)
    texts = {"error": CONTROL * 9_000, "notebook": f"/{WIDE * 1_000}", "cluster": "c" * 24, "cell": "e" * 64}
    times = {"started": 1767225600.1234567, "ended": 1767225610.1234567}
    more = {"kernel": "k" * 36, "resumed_from": run, "backend": "horovod", "size": 16_384}
    folder = write_run(runs, run, name=WIDE * 9_000, config=config, **texts, **times, **more)
    series = {name: [digits] for name in names(100, CONTROL, 80)}
    (folder / VIEW).write_text(view(run, **series))
    tags = [f"{number:>4}{place:>2}".ljust(LONGEST_TAG, WIDE) for place in range(MOST_TAGS)]
    texts = {"name": WIDE * LONGEST_NAME, "tags": tags, "notes": CONTROL * LONGEST_STORED_NOTES}
    change_notes(folder, {**EDIT, **texts})
    return folder


async def complete(server, query):
    """Return a complete page of the table from the server."""
    give_up = time.monotonic() + DEADLINE
    while not (found := await server.ask("GET", query))["complete"]:
        assert time.monotonic() < give_up
    return found


@pytest.mark.parametrize(
    "limit", [pytest.param(50, marks=pytest.mark.release), MOST_ROWS, pytest.param(1_000, marks=pytest.mark.release)]
)
async def test_a_page_of_the_largest_runs_has_at_most_200_kilobytes(tmp_path, monkeypatch, runs, table, limit):
    for number in range(COUNT):
        write_large(runs, number)
    page(table)
    settle()
    async with panel_server(tmp_path, monkeypatch) as server:
        found = await complete(server, f"table?limit={limit}")
    assert misfit(found, wire_routes.RunTable) is None
    assert (len(found["runs"]), found["total"]) == (min(limit, MOST_ROWS), COUNT)
    assert len(server.answers[-1].encode()) <= MOST_BYTES
    row = found["runs"][0]
    assert all(text.endswith("…") for text in (row["name"], row["error"], row["notes"], row["notebook"]))
    assert (row["tags"][-1], row["cell"]) == ("…", "e" * 64)
    assert len(found["columns"]) == 20
    assert None not in row["values"]
    assert all(len(row["name"]) > WHOLE_NAME for row in found["runs"])


def test_usual_texts_are_whole(table, runs):
    for number in range(MOST_ROWS):
        folder = write_run(runs, f"20260102-{number:06d}-abcd", name="n" * 80, notebook="/home/ada/work/digits.ipynb")
        change_notes(folder, {**EDIT, "tags": ["paper", "best"], "notes": "a note " * 20})
    row = page(table, limit=MOST_ROWS)["runs"][0]
    assert (row["name"], row["tags"], row["notes"]) == ("n" * 80, ["paper", "best"], "a note " * 20)


def test_a_change_answers_with_whole_texts(table, runs):
    folder = write_large(runs, 1)
    whole = "word " * 2_000
    row = table.change(folder.name, {**EDIT, "notes": whole}, ())
    assert (row["notes"], row["values"], len(row["name"]), len(row["tags"])) == (whole, [], LONGEST_NAME, MOST_TAGS)
    assert table.change(folder.name, EDIT, ())["notes"] == whole


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("abc", 5, "abc"),
        ("abcdef", 7, "ab…"),
        (WIDE * 4, 17, WIDE * 3 + "…"),
        (WIDE * 4, 16, WIDE * 2 + "…"),
        (WIDE * 4, 18, WIDE * 4),
        (CONTROL * 9, 32, CONTROL * 4 + "…"),
        ('"' * 9, 10, '""…'),
        ("\ud800" * 9, 10, "\ud800" * 5 + "…"),
    ],
)
def test_a_text_is_shortened_to_bytes(text, most, short):
    assert shortened(text, most) == short
    assert len(json.dumps(short, ensure_ascii=False).encode("utf-8", "replace")) <= most


def test_long_and_numerous_names_are_not_listed():
    assert listed(["b", "a", "b", "a" * 600]) == ["a", "b"]
    assert listed(f"{number:04}" for number in range(900)) == [f"{number:04}" for number in range(500)]
    assert len(listed(f"{number:0100}" for number in range(900))) == 20_000 // 103


def write_wide(runs):
    """Write a run with 20 series and 10 hyper-parameters."""
    folder = write_run(runs, BAD, config={f"p{number}": number for number in range(10)})
    (folder / VIEW).write_text(view(BAD, **{f"s{number:02}": [float(number)] for number in range(20)}))


def test_a_row_has_the_values_of_the_first_names_and_of_the_added_columns(table, runs):
    write_wide(runs)
    parts = "last", "lowest", "highest"
    first = [f"series.s{number:02}.{part}" for number in range(4) for part in parts]
    usual = [*first, *(f"config.p{number}" for number in range(8))]
    found = page(table)
    assert found["columns"] == usual
    assert (len(found["series"]), len(found["config"])) == (20, 10)
    added = ["series.s19.last", "config.p9", "config.p0", "series.none.last", "config.none"]
    found = page(table, added=added)
    assert found["columns"] == [*usual, "series.s19.last", "config.p9", "series.none.last", "config.none"]
    assert found["runs"][0]["values"][-4:] == [19.0, 9, None, None]


def test_columns_that_are_not_in_the_rows_sort_and_filter_the_table(table, runs):
    write_wide(runs)
    other = write_run(runs, "20260101-000002-aaaa", config={"p9": 1})
    (other / VIEW).write_text(view(other.name, s19=[5.0]))
    for column in ("series.s19.lowest", "config.p9"):
        assert ids(page(table, sort=column, descending=False)) == [other.name, BAD]
        assert ids(page(table, sort=column)) == [BAD, other.name]
    assert ids(page(table, Filter(text="p9=9"))) == [BAD]


@pytest.mark.parametrize("column", ["name", "series.loss", "series.loss.mean", "", "a" * 300])
def test_only_columns_of_series_and_hyper_parameters_are_added(table, column):
    with pytest.raises(UsageError, match=f"there is no column '{column[:100]}' to add; add config.NAME, or series"):
        table.page(active=(), wanted=Filter(), added=[column])


def test_the_number_of_added_columns_is_limited(table, runs):
    write_wide(runs)
    added = [f"config.q{number}" for number in range(MOST_ADDED + 1)]
    assert len(cells(page(table, added=added[:-1]))) == 20 + MOST_ADDED
    with pytest.raises(UsageError, match="a page of the table has at most 60 added columns, not 61; hide some"):
        table.page(active=(), wanted=Filter(), added=added)


async def test_the_route_adds_columns(tmp_path, monkeypatch, runs):
    write_wide(runs)
    async with panel_server(tmp_path, monkeypatch) as server:
        found = await complete(server, "table?column=config.p9&column=series.s19.last&column=config.%20p")
        assert found["columns"][-3:] == ["config.p9", "series.s19.last", "config. p"]
        assert found["runs"][0]["values"][-3:] == [9, 19.0, None]
        refused = await server.ask("GET", "table?column=name", 400)
    assert (refused["code"], "'name'" in refused["message"]) == ("invalid", True)


def test_the_names_of_series_of_a_run_that_has_ended_are_found(table, runs):
    folder = write_run(runs, BAD, status="running", ended=None)
    page(table)
    settle()
    (folder / VIEW).write_text(view(BAD, late=[1.0]))
    write_run(runs, BAD)
    write_run(runs, "20260101-000009-aaaa", name="z")
    page(table, sort="name", limit=1)
    settle()
    assert page(table, sort="name", limit=1)["series"] == ["late", "loss"]


class CountingCharts(Charts):
    """Records for which runs the versions of the files are read."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def version(self, info, *, by_rank=False):
        self.asked.append(info.id)
        return super().version(info, by_rank=by_rank)


def test_a_page_checks_only_its_own_and_unended_runs_for_changes(runs, tmp_path):
    charts = CountingCharts()
    table = Table(RunIndex(runs, tmp_path / "home"), charts)
    own = [f"20260102-{number:06d}-abcd" for number in range(30)]
    for run in own:
        write_run(runs, run)
    write_run(runs, BAD, status="running", ended=None)
    page(table, limit=5)
    settle()
    charts.asked.clear()
    page(table, limit=5)
    settle()
    assert set(charts.asked) == {*own[-5:], BAD}
    charts.asked.clear()
    page(table, sort="series.loss.last", limit=5)
    settle()
    assert set(charts.asked) == {*own, BAD}


def test_the_default_columns_are_those_that_most_runs_have(table, runs):
    for number in range(3):
        rare = {f"a{number}{place}": 0 for place in range(9)}
        folder = write_run(runs, f"20260102-{number:06d}-abcd", config={**rare, "lr": 0.1, "batch": 8})
        series = {f"a{number}{place}": [1.0] for place in range(4)}
        (folder / VIEW).write_text(view(folder.name, **series, loss=[1.0]))
    found = page(table)
    names = [column.removeprefix("config.") for column in found["defaults"] if column.startswith("config.")]
    assert names == ["a00", "a01", "a02", "a03", "a04", "a05", "batch", "lr"]
    assert [column for column in found["defaults"] if column.endswith(".last")] == [
        f"series.{name}.last" for name in ("a00", "a01", "a02", "loss")
    ]
    assert page(table, added=["config.a28"])["columns"] == [*found["defaults"], "config.a28"]
