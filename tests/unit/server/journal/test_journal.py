"""Tests for the journal of a rank in a run: order, message numbers, size limits, full disks and notices."""

import asyncio
import json
import os

import pytest
from farandole.protocol import RECORD_NUMBER, RECORD_RUN, Part
from farandole.server.journal import journal, journals
from farandole.server.journal.journal import Journal
from farandole.server.journal.journals import Journals
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1


class Owner:
    has_driver = True

    def end_stopped_run(self):
        raise AssertionError("unexpected stop of this kernel")


def message(kind, content, request="cell", metadata=None):
    parts = ({"msg_type": kind}, {"msg_id": request}, metadata or {}, content)
    return [json.dumps(part).encode() for part in parts]


def printed(text):
    return message("stream", {"name": "stdout", "text": text})


@pytest.fixture
def kept(tmp_path):
    kept = Journal(tmp_path / "record", run="r", kernel_id="k", rank=1, about={}, owner=Owner())
    kept.requests["cell"] = Part.CELL
    yield kept
    kept.remove()
    assert not (tmp_path / "record").exists()


def frames(data):
    """Return the frames in ``data``, and check that no frame is incomplete."""
    found = []
    while data:
        length = int.from_bytes(data[:4], "big")
        assert len(data) >= 4 + length
        found.append(data[4 : 4 + length])
        data = data[4 + length :]
    return found


def contents_after(kept, after=0):
    """Return the number and content of each message after the first ``after`` messages."""
    found = []
    while after < kept.count:
        data, after = kept.read(after)
        found += [deserialize_msg_from_ws_v1(frame)[1] for frame in frames(data)]
    return [(json.loads(parts[2])[RECORD_NUMBER], json.loads(parts[3])) for parts in found]


def texts(kept, after=0):
    return [content["text"] for _, content in contents_after(kept, after)]


def test_messages_are_numbered_from_one_and_readable_from_any_number(kept):
    for number in range(5):
        kept.add("iopub", "stream", printed(str(number)))
    assert [number for number, _ in contents_after(kept)] == [1, 2, 3, 4, 5]
    assert texts(kept, 3) == ["3", "4"]
    assert kept.read(5) == (b"", 5)


def test_the_driver_gets_the_number_and_other_metadata_are_kept(kept):
    frame = kept.add("iopub", "display_data", message("display_data", {}, metadata={"mine": 1}))
    channel, parts = deserialize_msg_from_ws_v1(frame)
    assert (channel, json.loads(parts[2])) == ("iopub", {"mine": 1, RECORD_NUMBER: 1, RECORD_RUN: "r"})


def test_buffers_are_kept(kept):
    kept.add("iopub", "comm_msg", [*message("comm_msg", {}), b"\x00blob"])
    [frame] = frames(kept.read(0)[0])
    assert deserialize_msg_from_ws_v1(frame)[1][4:] == [b"\x00blob"]


def test_long_journals_are_read_in_parts_of_complete_messages(kept, monkeypatch):
    monkeypatch.setattr(journal, "READ_BYTES", 1000)
    for number in range(50):
        kept.add("iopub", "stream", printed(str(number) * 100))
    data, after = kept.read(0)
    assert 0 < after < 50
    assert len(frames(data)) == after
    assert len(texts(kept)) == 50


def test_messages_wait_while_the_disk_is_full_and_are_written_later(kept, monkeypatch):
    kept.add("iopub", "stream", printed("before"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *_: _raise())
        kept.add("iopub", "stream", printed("full"))
        assert texts(kept) == ["before", "full"]
        assert texts(kept, 1) == ["full"]
    kept.add("iopub", "stream", printed("after"))
    assert texts(kept) == ["before", "full", "after"]


def _raise():
    raise OSError(28, "No space left on device")


def test_a_partial_write_is_completed(kept, monkeypatch):
    pwrite = os.pwrite
    kept.add("iopub", "stream", printed("before"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, data, start: pwrite(file, data[:7], start))
        kept.add("iopub", "stream", printed("torn"))
        assert texts(kept) == ["before", "torn"]
    kept.add("iopub", "stream", printed("after"))
    assert texts(kept) == ["before", "torn", "after"]


def test_beyond_its_limit_it_keeps_reports_and_the_end_with_one_notice(kept):
    kept.limit = 2000
    for number in range(30):
        kept.add("iopub", "stream", printed("x" * 100))
        kept.add("iopub", "comm_msg", message("comm_msg", {"report": number}))
    kept.add("shell", "execute_reply", message("execute_reply", {"status": "ok"}))
    contents = [content for _, content in contents_after(kept)]
    assert [content["report"] for content in contents if "report" in content] == list(range(30))
    assert contents[-1] == {"status": "ok"}
    streams = [content["text"] for content in contents if "text" in content]
    assert len(streams) < 15
    assert "records no more of it" in streams[-1]
    assert sum("records no more of it" in text for text in streams) == 1


def test_messages_that_are_not_kept_are_forwarded_without_a_number(kept):
    kept.limit = 0
    _, parts = deserialize_msg_from_ws_v1(kept.add("iopub", "stream", printed("live")))
    assert (json.loads(parts[3])["text"], json.loads(parts[2])) == ("live", {})


async def test_waiting_readers_wake_for_messages_and_for_the_end(kept):
    waiting = asyncio.create_task(kept.wait(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    kept.add("iopub", "stream", printed("news"))
    await asyncio.wait_for(waiting, 5)
    waiting = asyncio.create_task(kept.wait(1))
    await asyncio.sleep(0)
    kept.end()
    await asyncio.wait_for(waiting, 5)
    assert kept.ended


@pytest.fixture
def store(tmp_path):
    return Journals(tmp_path)


def begin(store, run, kernel="k", request="begin"):
    mark = {"run": run, "part": Part.BEGIN, "rank": 0, "about": {"run": {"id": run}}}
    store.note_request(kernel, request, mark, Owner())
    return store.get(run, kernel)


def test_a_message_belongs_to_the_run_of_its_request(store):
    mine = begin(store, "run-1")
    store.note_request("k", "cell", {"run": "run-1", "part": Part.CELL, "rank": 0}, Owner())
    assert mine.requests == {"begin": "begin", "cell": "cell"}
    assert store.of_message("k", "stream", printed("x")) is mine
    assert store.of_message("k", "stream", message("stream", {}, request="another")) is None
    assert store.of_message("other", "stream", printed("x")) is None


def test_a_report_belongs_to_the_run_that_it_names(store):
    first, second = begin(store, "run-1"), begin(store, "run-2", request="begin-2")
    late = message("comm_msg", {"data": {"run": "run-1"}}, request="anything")
    assert store.of_message("k", "comm_msg", late) is first
    assert first.ended
    assert not second.ended
    assert store.of_message("k", "comm_msg", message("comm_msg", {"data": {"run": ""}})) is None


def test_the_last_runs_and_active_runs_are_kept(store):
    going = begin(store, "going", kernel="another")
    for number in range(10):
        begin(store, f"run-{number}", request=str(number)).end()
    kept = [one["run"] for one in store.describe()]
    assert kept[0] == "going"
    assert kept[-1] == "run-9"
    assert len(kept) < 8
    assert not going.ended


def test_the_listing_shows_active_runs_and_runs_with_a_driver(store):
    one = begin(store, "run-1")
    one.owner.has_driver = False
    with one.reading():
        assert [entry["led"] for entry in store.describe()] == [True]
    [entry] = store.describe()
    assert (entry["led"], entry["ended"], entry["count"], entry["rank"]) == (False, None, 0, 0)
    one.end()
    assert store.describe()[0]["ended"] > 0


def test_all_journals_share_one_limit_and_ended_runs_are_removed_first(store, monkeypatch):
    monkeypatch.setattr(journals, "TOTAL_BYTES", 5000)
    old, new = begin(store, "old", kernel="a"), begin(store, "new", kernel="b")
    for one in (old, new):
        for _ in range(20):
            one.add("iopub", "stream", printed("x" * 100))
    assert "records no more of it" in texts(new)[-1]
    assert old.size + new.size < 7000
    count = new.count
    old.end()
    new.add("iopub", "stream", printed("room again"))
    assert new.count == count + 1
    assert [one["run"] for one in store.describe()] == ["new"]


@pytest.mark.parametrize(
    "mark",
    [
        {"run": [], "part": "begin", "rank": 0, "about": {}},
        {"run": {"a": 1}, "part": "begin", "rank": 0, "about": {}},
        {"run": "../../x", "part": "begin", "rank": 0, "about": {}},
        {"run": "r\0", "part": "cell", "rank": 0},
        {"run": "r", "part": "begin", "rank": 10**300, "about": {}},
        {"run": "r", "part": "begin", "rank": 0},
        {"part": "begin"},
        [],
        "begin",
    ],
)
async def test_a_strange_mark_breaks_no_answer_about_the_journals(tmp_path, mark):
    store = Journals(tmp_path)
    with pytest.raises(ValueError, match="does not describe a request of a run"):
        store.note_request("k", "m", mark, Owner())
    store.note_request("k", "m", {"run": "r", "part": Part.BEGIN, "rank": 0, "about": {}}, Owner())
    assert store.active_runs == ["r"]
    assert [one["run"] for one in store.describe()] == ["r"]
