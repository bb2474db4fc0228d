"""Tests for the logs of a run on a real notebook server: parts from a time on, and the search."""

import asyncio
import json
import threading
from urllib.parse import urlencode

import pytest
from farandole.server.panel import wire, wire_routes
from farandole.server.panel.files import read_log
from farandole.server.panel.logs import search
from farandole.server.panel.logs.search import Needle, lines_with
from farandole.server.panel.routes import logs

from tests.panel import panel_server
from tests.strange import BAD, GOOD, limited_memory, loop, outside, pipe, replaced, write_run
from tests.unit.server.panel.test_wire import misfit

pytestmark = pytest.mark.timeout(120)
START = 1767225600.0
GIGABYTE = 10**9


@pytest.fixture
def run(tmp_path):
    """A run whose ranks have printed a line each second."""
    folder = write_run(tmp_path / "runs")
    for rank in range(2):
        lines = [f"rank {rank} epoch {second}: Loss größer {second / 8}\n".encode() for second in range(10)]
        (folder / f"logs/rank-{rank}.log").write_bytes(b"".join(lines))
        pairs = [json.dumps([sum(map(len, lines[:second])), START + second]) for second in range(10)]
        (folder / "times").mkdir(exist_ok=True)
        (folder / f"times/rank-{rank}.jsonl").write_text("\n".join(pairs) + "\n")
    return folder


@pytest.fixture
async def server(tmp_path, monkeypatch, run):
    async with panel_server(tmp_path, monkeypatch) as server:
        yield server


async def find(server, status=200, run=GOOD, **query):
    found = await server.ask("GET", f"runs/{run}/search?{urlencode(query)}", status)
    assert misfit(found, wire_routes.LogMatches if status == 200 else wire.Problem) is None
    return found


async def test_a_search_returns_rank_line_offset_time_and_text(server, run):
    found = await find(server, text="EPOCH 3: loss GRÖßER")
    assert [(one["rank"], one["line"], one["time"]) for one in found["matches"]] == [
        (0, 4, START + 3),
        (1, 4, START + 3),
    ]
    assert found["complete"]
    first = found["matches"][0]
    assert first["text"] == "rank 0 epoch 3: Loss größer 0.375"
    assert (run / "logs/rank-0.log").read_bytes()[first["offset"] :].startswith(b"epoch 3")


async def test_a_search_can_have_one_rank_the_exact_case_and_a_limit(server):
    assert [one["rank"] for one in (await find(server, text="epoch 3", ranks="1"))["matches"]] == [1]
    assert (await find(server, text="loss", case=1))["matches"] == []
    few = await find(server, text="Loss", case=1, limit=3)
    assert [one["line"] for one in few["matches"]] == [1, 2, 3]
    assert not few["complete"]
    assert (await find(server, text="(.*)+$"))["matches"] == []
    assert (await find(server, text="Loss", ranks="5"))["matches"] == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "text must not be empty; give the text"),
        ({"text": "  "}, "text must not be empty"),
        ({"text": "x" * 501}, "text must have at most 500 characters, not 501"),
        ({"text": "x", "ranks": "all"}, "'all' is not a list of ranks"),
        ({"text": "x", "limit": "many"}, "limit must be a number"),
    ],
)
async def test_an_invalid_search_is_refused(server, query, message):
    problem = await find(server, 400, **query)
    assert (problem["code"], message in problem["message"]) == ("invalid", True)


@pytest.mark.parametrize("make", [pipe, loop, outside])
async def test_a_log_that_is_no_regular_file_is_refused(server, run, make):
    replaced(make, run / "logs/rank-1.log")
    problem = await find(server, 404, text="root")
    assert f"the log of rank 1 of run '{GOOD}' cannot be read: 'logs/rank-1.log' is" in problem["message"]


@pytest.mark.parametrize("make", [pipe, loop, outside])
async def test_strange_times_are_unknown(server, run, make):
    replaced(make, run / "times/rank-0.jsonl")
    assert [one["time"] for one in (await find(server, text="epoch 3", ranks="0"))["matches"]] == [None]
    problem = await server.ask("GET", f"runs/{GOOD}/logs/0?time={START}", 404)
    assert "the times of the output of rank 0" in problem["message"]


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "rank 1 epoch 0"),
        (START + 4, "rank 1 epoch 4"),
        (START + 4.5, "rank 1 epoch 4"),
        (START + 9.99, "rank 1 epoch 9"),
    ],
)
async def test_a_part_starts_at_a_time(server, time, text):
    part = await server.ask("GET", f"runs/{GOOD}/logs/1?time={time}")
    assert misfit(part, wire.LogPart) is None
    assert part["text"].startswith(text)


async def test_only_the_part_at_a_time_is_read(server, monkeypatch):
    read = []
    monkeypatch.setattr(logs, "read_log", lambda *arguments: read.append(arguments[1:]) or read_log(*arguments))
    part = await server.ask("GET", f"runs/{GOOD}/logs/1?time={START + 4}&limit=6")
    assert (part["text"], read) == ("rank 1", [(1, part["offset"], 6)])


async def test_a_rank_that_the_run_does_not_have_has_no_part_at_a_time(server):
    problem = await server.ask("GET", f"runs/{GOOD}/logs/7?time={START}", 404)
    assert "has no rank 7; it has the ranks 0-1" in problem["message"]


async def test_a_time_after_the_last_output_is_the_end_of_the_log(server):
    part = await server.ask("GET", f"runs/{GOOD}/logs/1?time={START + 60}")
    assert (part["text"], part["offset"]) == ("", part["size"])


async def test_a_time_in_the_middle_of_a_line_is_the_next_line(server, run):
    (run / "times/rank-0.jsonl").write_text(f"[0, 5]\n[]\n[3, {START}]\nnull\n[-1, 3]\n")
    part = await server.ask("GET", f"runs/{GOOD}/logs/0?time={START}")
    assert part["text"].startswith("rank 0 epoch 1:")


async def test_a_run_of_an_earlier_version_has_no_times(server, run):
    write_run(run.parent, BAD)
    assert [one["time"] for one in (await find(server, run=BAD, text="hello"))["matches"]] == [None]
    problem = await server.ask("GET", f"runs/{BAD}/logs/0?time=5", 404)
    assert "are not recorded, because it printed nothing or an earlier version wrote the run" in problem["message"]


@pytest.mark.parametrize("time", ["now", "nan", "-1", "1e400"])
async def test_an_invalid_time_is_refused(server, time):
    problem = await server.ask("GET", f"runs/{GOOD}/logs/0?time={time}", 400)
    assert "time must be a number of seconds since the epoch" in problem["message"]


async def test_a_search_in_a_log_of_a_gigabyte_needs_little_memory(server, run, monkeypatch):
    """The file is a line of 1 GB, which is sparse and ends with a match."""
    monkeypatch.setattr(logs, "SEARCH_SECONDS", 60.0)
    with (run / "logs/rank-0.log").open("wb") as file:
        file.write(b"first needle\nsecond ")
        file.seek(GIGABYTE)
        file.write(b" needle and more\nlast needle")
    with limited_memory(100_000_000):
        found = await find(server, text="needle", ranks="0")
    assert [(one["line"], one["offset"]) for one in found["matches"]] == [
        (1, 6), (2, GIGABYTE + 1), (3, GIGABYTE + 22),
    ]  # fmt: skip
    assert max(len(one["text"]) for one in found["matches"]) <= 500


async def test_a_search_that_takes_long_returns_what_it_has_found(server, run, monkeypatch):
    monkeypatch.setattr(logs, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(search, "STEP_BYTES", 1)
    with (run / "logs/rank-0.log").open("ab") as file:
        file.truncate(GIGABYTE)
    found = await find(server, text="nothing of that kind")
    assert (found["matches"], found["complete"]) == ([], False)


async def test_a_search_in_a_log_that_consists_of_escape_sequences_is_complete(server, run, monkeypatch):
    """The text occurs nowhere, but its beginning occurs everywhere, which makes a regular expression slow."""
    monkeypatch.setattr(logs, "SEARCH_SECONDS", 30.0)
    (run / "logs/rank-0.log").write_bytes(b"a\x1b[0m" * 6_400_000 + b"\nthe end\n")
    assert await find(server, text="a" * 499 + "b", ranks="0") == {"id": GOOD, "matches": [], "complete": True}
    [match] = (await find(server, text="THE END", ranks="0"))["matches"]
    assert (match["line"], match["offset"]) == (2, 32_000_001)


async def test_a_search_ends_when_its_client_goes_away(server, run, monkeypatch):
    monkeypatch.setattr(logs, "SEARCH_SECONDS", 600.0)
    ended = threading.Event()

    def endless(_info, _ranks, _needle, _limit, stopped):
        stopped.wait(60)
        ended.set()
        return {"id": GOOD, "matches": [], "complete": False}

    monkeypatch.setattr(logs, "search", endless)
    asking = asyncio.create_task(find(server, text="x"))
    await asyncio.sleep(0.5)
    asking.cancel()
    assert await asyncio.to_thread(ended.wait, 30)


def lines(tmp_path, content, text, **options):
    path = tmp_path / "log"
    path.write_bytes(content)
    with path.open("rb") as file:
        return [
            (one.line, one.offset, one.text)
            for one in lines_with(file, Needle(text, **{"case": False, **options}), threading.Event())
        ]


def test_each_line_is_found_once_on_any_boundary_of_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "AROUND_BYTES", 64)
    content = b"".join(b"%d needle needle\n" % number for number in range(200))
    wanted = [number + 1 for number in range(200)]
    for size in (1, 7, 63, 64, 65, 1000):
        monkeypatch.setattr(search, "STEP_BYTES", size)
        found = lines(tmp_path, content, "NEEDLE")
        assert [line for line, _, _ in found] == wanted
        assert all(content[offset:].startswith(b"needle needle") for _, offset, _ in found)


def test_colours_in_the_middle_of_a_text_do_not_hide_it(tmp_path):
    [(line, offset, text)] = lines(tmp_path, b"a\n\x1b[31mErr\x1b[1;4mor\x1b[0m: none\r\n", "error: none")
    assert (line, offset, text) == (2, 7, "Error: none")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("colour", ["", "\x1b[1;31m"])
@pytest.mark.parametrize("text", ["größe €", "GRÖSSE €", "loss"])
def test_offsets_count_bytes_of_the_log_on_any_boundary_of_steps(tmp_path, monkeypatch, size, colour, text):
    monkeypatch.setattr(search, "AROUND_BYTES", 64)
    monkeypatch.setattr(search, "STEP_BYTES", size)
    content = f"ẞ\xff {colour}İGrö{colour}ße{colour} €: L{colour}oss {colour}\n".encode() * 20 + b"\xff\x1b[3"
    found = lines(tmp_path, content, text)
    assert [line for line, _, _ in found] == list(range(1, 21))
    first = "L" if text == "loss" else "G"
    assert all(content[offset:].decode("utf-8", "ignore").startswith(first) for _, offset, _ in found)
    assert {shown for _, _, shown in found} == {"ẞ\xff İGröße €: Loss "}


def test_text_that_is_not_utf_8_is_searched(tmp_path):
    assert lines(tmp_path, b"\xff\xfe\n\xff needle \xff", "needle") == [(2, 5, " needle ")]
    assert lines(tmp_path, "STRASSE straße".encode(), "Straße")[0][1] == 0


def test_a_long_line_is_cut_around_its_match(tmp_path):
    [(_, _, text)] = lines(tmp_path, b"x" * 5000 + b"needle" + b"y" * 5000, "needle")
    assert text == "x" * 200 + "needle" + "y" * 294
