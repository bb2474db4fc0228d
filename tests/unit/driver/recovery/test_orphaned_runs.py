"""Tests for journals that no driver has read to the end, and for restoring runs from these journals later."""

import asyncio
import fcntl
import gc
import json
import os
import shutil
import subprocess
import sys
import warnings
from functools import partial

import pytest
from farandole.driver.options import Elastic
from farandole.driver.recovery import orphaned_runs
from farandole.driver.recovery.orphaned_runs import complete, orphaned_workers
from farandole.driver.recovery.reattach import about, restore_run
from farandole.driver.workers.local import LOCAL_STOP_SECONDS
from farandole.protocol import COMM_TARGET, LEFT_RECORDS, Part, Report, Status, report_to_json
from farandole.reading import other_writer
from farandole.runs.lifecycle.tombstones import marked_as_deleted
from farandole.runs.positions import POSITIONS
from farandole.runs.store import RunStore
from farandole.server.journal import journals
from farandole.server.journal.journals import Journals
from jupyter_client.manager import KernelManager
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1

from tests.strange import FILES, limited_memory, outside, pipe, replaced

OK = {"status": "ok"}
LATE = {"status": "error", "ename": "ValueError", "evalue": "late", "traceback": []}


class Owner:
    """The connection to a rank. Its driver has disconnected unless `has_driver` is true."""

    def __init__(self, has_driver=False):
        self.has_driver = has_driver

    def end_stopped_run(self):
        raise AssertionError("unexpected stop of this kernel")


@pytest.fixture
def own_garbage():
    """Exclude the objects of earlier tests from garbage collection, because there are many of them."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


@pytest.fixture(params=["positions", "no positions"])
def run(store, request):
    """A run of two ranks. Its driver was killed after step 0.

    Tests run with and without positions.json, because older drivers did not write this file.
    """
    run = store.create(code="x", backend="none", cluster="c", size=2, workers=["c-w0", "c-w1"], name="long")
    for rank in range(2):
        run.add_records(rank, reported(rank, 0), position=(f"kernel-{rank}", 1))
        run.add_log(rank, "line 0\n", position=(f"kernel-{rank}", 2))
    run.let_go()
    for rank in range(2):
        with (run.folder / "logs" / f"rank-{rank}.log").open("a") as log:
            log.write("li")
    if request.param == "no positions":
        (run.folder / POSITIONS).unlink()
    change(run, pid=ended_process())
    return run


def ended_process():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def change(run, **driver):
    path = run.folder / "run.json"
    info = json.loads(path.read_text())
    info["driver"] |= driver
    path.write_text(json.dumps(info))


def reported(rank, step):
    return report_to_json(Report(rank=rank, time=float(step), step=step, values={"loss": 0.5}))


def message(kind, content, request):
    parts = ({"msg_type": kind}, {"msg_id": request}, {}, content)
    return [json.dumps(part).encode() for part in parts]


def said(records, run, rank, *, steps=3, reply=OK, owner=None, elastic=None):
    """Record the messages that a rank sends during a run, and return the journal, which has not ended yet."""
    owner, kernel = owner or Owner(), f"kernel-{rank}"
    for part in Part:
        mark = {"run": run.id, "part": part, "rank": rank, "about": about(run, elastic)}
        records.note_request(kernel, part, mark, owner)
    record = records.get(run.id, kernel)
    for step in range(steps):
        data = {"run": run.id, "rank": rank, "records": [reported(rank, step)]}
        content = {"comm_id": COMM_TARGET, "data": data}
        record.add("iopub", "comm_msg", message("comm_msg", content, Part.CELL))
        text = {"name": "stdout", "text": f"line {step}\n"}
        record.add("iopub", "stream", message("stream", text, Part.CELL))
    if reply is not None:
        result = {"kind": "result", "value": rank}
        content = {"comm_id": COMM_TARGET, "data": {"run": run.id, "rank": rank, "records": [result]}}
        record.add("iopub", "comm_msg", message("comm_msg", content, Part.CELL))
        record.add("shell", "execute_reply", message("execute_reply", reply, Part.CELL))
        record.add("shell", "execute_reply", message("execute_reply", OK, Part.END))
    return record


def leave(folder, run, *ranks, **options):
    """Write these ranks' journals to the end without a driver, and persist the journals as a stopping worker does."""

    folder.mkdir(exist_ok=True)

    async def end():
        records = Journals(folder)
        for rank in ranks:
            records.end(said(records, run, rank, **options), completed=True)
        await records.persist_all()
        return records

    return asyncio.run(end())


def left(run):
    return sorted(path.name for path in (run.folder / LEFT_RECORDS).glob("*"))


def assert_complete(store, run):
    for rank in range(2):
        assert (run.folder / "logs" / f"rank-{rank}.log").read_text() == "line 0\nline 1\nline 2\n"
    frame = store.load_run(run.id)
    assert [frame[frame["rank"] == rank]["step"].to_list() for rank in range(2)] == [[0, 1, 2], [0, 1, 2]]


def test_a_run_is_completed_from_the_journals_in_its_folder(store, run, tmp_path):
    leave(tmp_path, run, 0, 1)
    assert store.find("long").status is Status.LOST
    [restored] = complete(store)
    assert (restored.id, restored.status, restored.results) == (run.id, Status.FINISHED, {0: 0, 1: 1})
    info = store.find("long")
    assert (info.status, info.results, info.ended) == (Status.FINISHED, {0: 0, 1: 1}, restored.ended)
    assert_complete(store, run)
    assert not (run.folder / LEFT_RECORDS).exists()
    assert complete(store) == []


def test_it_fails_like_its_cell(store, run, tmp_path):
    leave(tmp_path, run, 0)
    leave(tmp_path / "other", run, 1, reply=LATE)
    [restored] = complete(store)
    assert restored.status is Status.FAILED
    assert "rank 1 (worker local): ValueError: late" in restored.error
    assert_complete(store, run)


def test_a_rank_that_may_continue_delays_the_end_while_a_worker_exists(store, run, tmp_path):
    leave(tmp_path, run, 0)
    assert complete(store) == complete(store, cluster="another") == []
    assert store.find("long").status is Status.LOST
    [restored] = complete(store, cluster="c")
    assert "rank 1 (worker c-w1): its process is gone, lost" in restored.error
    assert len(restored.dataframe()) == 4


def test_an_elastic_run_is_completed_once_no_worker_exists(store, run, tmp_path):
    leave(tmp_path, run, 0, 1, elastic=Elastic())
    assert complete(store) == []
    [restored] = complete(store, cluster="c")
    assert (restored.status, restored.results) == (Status.FINISHED, {0: 0, 1: 1})
    assert_complete(store, run)


def test_a_run_of_another_host_is_completed_unless_its_driver_has_resumed_it(store, run, tmp_path):
    change(run, host="elsewhere")
    leave(tmp_path, run, 0, 1)
    newest = max(path.stat().st_mtime for path in (run.folder / LEFT_RECORDS).glob("*"))
    os.utime(run.folder / "run.json", (newest + 5, newest + 5))
    assert complete(store) == []
    os.utime(run.folder / "run.json", (newest - 5, newest - 5))
    assert [restored.status for restored in complete(store)] == [Status.FINISHED]


def test_journals_of_a_run_that_a_driver_has_ended_are_removed(store, run, tmp_path):
    leave(tmp_path, run, 0, 1)
    again = store.resume(json.loads(run.info.to_json()), "x")
    assert complete(store) == []
    assert left(run) == ["kernel-0.frames", "kernel-0.json", "kernel-1.frames", "kernel-1.json"]
    again.finish(Status.FINISHED)
    assert complete(store) == []
    assert left(run) == []


def test_a_run_that_another_process_completes_is_left_alone(store, run, tmp_path):
    leave(tmp_path, run, 0, 1)
    folder = os.open(run.folder / LEFT_RECORDS, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    assert complete(store) == []
    os.close(folder)
    assert len(complete(store)) == 1


def test_an_unreadable_journal_does_not_break_the_list_of_runs(store, run, tmp_path):
    leave(tmp_path, run, 0, 1)
    frames = run.folder / LEFT_RECORDS / "kernel-1.frames"
    frames.unlink()
    assert complete(store) == []
    frames.mkdir()
    with pytest.warns(UserWarning, match=rf"saved of run '{run.id}' cannot be read: .*is not a regular file"):
        assert complete(store) == []


def test_no_journal_is_kept_if_a_driver_reads_or_has_ended_the_run(store, run, tmp_path):
    leave(tmp_path, run, 0, owner=Owner(has_driver=True))
    assert left(run) == []
    store.resume(json.loads(run.info.to_json()), "x").finish(Status.FINISHED)
    leave(tmp_path / "other", run, 0)
    assert left(run) == []


async def test_a_driver_that_ends_before_it_writes_the_end_leaves_the_journal(store, run, tmp_path):
    records, owner = Journals(tmp_path), Owner(has_driver=True)
    records.end(said(records, run, 0, owner=owner), completed=True)
    await records.persist_all()
    assert left(run) == []
    owner.has_driver = False
    records.abandon(owner)
    await records.persist_all()
    assert left(run) == ["kernel-0.frames", "kernel-0.json"]


async def test_a_driver_that_releases_a_dead_rank_leaves_no_journal(store, run, tmp_path):
    records, owner = Journals(tmp_path), Owner(has_driver=True)
    record = said(records, run, 0, owner=owner, reply=None)
    records.end(record, completed=False)
    record.end_was_read = True
    owner.has_driver = False
    records.abandon(owner)
    assert not record.persisting
    assert not records.has_unread_end
    await records.persist_all()
    assert left(run) == ["kernel-0.frames", "kernel-0.json"]


def test_journals_are_saved_before_the_stopping_server_is_killed():
    kernels = KernelManager().shutdown_wait_time
    assert kernels + journals.PERSIST_SECONDS < LOCAL_STOP_SECONDS


async def test_an_end_that_cannot_be_saved_keeps_its_worker_for_a_day(store, run, tmp_path, monkeypatch):
    (run.folder / "run.json").unlink()
    records = Journals(tmp_path)
    record = said(records, run, 0)
    assert not records.has_unread_end
    records.end(record, completed=True)
    await records.persist_all()
    assert records.has_unread_end
    with record.reading():
        assert not records.has_unread_end
    monkeypatch.setattr(journals, "UNREAD_SECONDS", -1.0)
    assert not records.has_unread_end


async def test_a_deleted_run_keeps_no_worker_and_does_not_come_back(store, run, tmp_path):
    with marked_as_deleted(run.folder):
        shutil.rmtree(run.folder)
    records = Journals(tmp_path)
    records.end(said(records, run, 0), completed=True)
    await records.persist_all()
    assert not records.has_unread_end
    assert not run.folder.exists()


def test_a_run_that_is_deleted_during_its_completion_stays_deleted(store, run, tmp_path, monkeypatch):
    leave(tmp_path, run, 0, 1)

    def deleted_meanwhile(*args, **options):
        with marked_as_deleted(run.folder):
            shutil.rmtree(run.folder)
        return restore_run(*args, **options)

    monkeypatch.setattr(orphaned_runs, "restore_run", deleted_meanwhile)
    with pytest.warns(UserWarning, match=f"run {run.id} has been deleted"):
        assert complete(store) == []
    assert not run.folder.exists()


async def test_a_saved_or_read_end_keeps_no_worker(store, run, tmp_path):
    records = Journals(tmp_path)
    one = said(records, run, 0)
    records.end(one, completed=True)
    await records.persist_all()
    assert one.persisted
    (run.folder / "run.json").unlink()
    other = said(records, run, 1, owner=Owner(has_driver=True))
    records.end(other, completed=True)
    other.owner.has_driver = False
    assert (other.persisted, records.has_unread_end) == (False, True)
    other.end_was_read = True
    assert not records.has_unread_end


def test_journals_that_others_can_write_are_not_followed(store, run, tmp_path):
    leave(tmp_path, run, 0, 1)
    (run.folder / LEFT_RECORDS).chmod(0o777)
    with pytest.warns(UserWarning, match=f"{run.id}.* may have written them: .* can be written by all users"):
        assert complete(store) == []
    with pytest.warns(UserWarning, match="other users may have written them"):
        assert orphaned_workers(store, "c") == []
    assert left(run)
    (run.folder / LEFT_RECORDS).chmod(0o755)
    assert [one.id for one in complete(store)] == [run.id]


def test_journals_in_the_folder_of_a_group_are_not_followed(store, run, tmp_path, monkeypatch):
    leave(tmp_path, run, 0, 1)
    monkeypatch.setattr(orphaned_runs, "other_writer", partial(other_writer, groups=tmp_path))
    with pytest.warns(UserWarning, match="in the folder of a group, where all members can write"):
        assert complete(store) == []


def test_only_their_user_can_write_persisted_journals(store, run, tmp_path):
    before = os.umask(0o000)
    try:
        leave(tmp_path, run, 0, 1)
    finally:
        os.umask(before)
    assert other_writer(run.folder / LEFT_RECORDS) is None


def test_no_journal_is_persisted_through_a_link(store, run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (run.folder / LEFT_RECORDS).symlink_to(tmp_path / "elsewhere")
    leave(tmp_path / "worker", run, 0)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["kernel-1.json", "kernel-1.frames"])
@pytest.mark.parametrize("make", FILES)
def test_a_strange_journal_hides_no_other_run(own_garbage, store, run, tmp_path, caplog, name, make):
    other = store.create(code="x", backend="none", cluster="c", size=1, workers=["c-w0"], name="other")
    other.let_go()
    change(other, pid=ended_process())
    leave(tmp_path / "other", other, 0)
    leave(tmp_path, run, 0, 1)
    replaced(make, run.folder / LEFT_RECORDS / name)
    caplog.clear()
    with limited_memory(), pytest.warns(UserWarning, match=f"saved of run '{run.id}' cannot be read: "):
        assert [one.id for one in complete(store)] == [other.id]
    assert {info.id for info in store.list()} == {run.id, other.id}
    # asyncio would log this if the reader of the other rank's journal had not ended and still held its file open.
    gc.collect()
    assert "Task was destroyed" not in caplog.text


@pytest.mark.parametrize(
    "changes",
    [{"rank": "1"}, {"rank": 10**300}, {"about": []}, {"about": {"run": {}, "code": ""}}, {"worker": 5},
     {"requests": 5},
     {"requests": {"m": "other"}}, {"ended": "now"}, {"count": 1e999}, {"more": 1}, {"run": "another"}],
)  # fmt: skip
def test_a_journal_of_wrong_types_hides_no_other_run(store, run, tmp_path, changes):
    leave(tmp_path, run, 0, 1)
    header = run.folder / LEFT_RECORDS / "kernel-1.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), **changes}))
    with pytest.warns(UserWarning, match=f"saved of run '{run.id}' cannot be read: "):
        assert complete(store) == complete(store, cluster="c") == []
    assert [info.id for info in store.list()] == [run.id]


def frame(*parts, count=None, offsets=None):
    """Return a message as stored in a journal, or one with a damaged header if ``count`` and ``offsets`` are given."""
    own = serialize_msg_to_ws_v1([json.dumps(part).encode() for part in parts], "shell")
    data = own if count is None else count.to_bytes(8, "little") + b"".join(n.to_bytes(8, "little") for n in offsets)
    return len(data).to_bytes(4, "big") + data


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "data",
    [
        (2**32 - 1).to_bytes(4, "big"),
        frame(count=20_000_000, offsets=[]),
        frame(count=6, offsets=[0, 10, 0, 10, 0, 10]),
        frame([], {}, {}, {}),
        frame({}, {}, {}, {}),
        frame({"msg_type": "comm_msg"}, {}, {}, {"comm_id": COMM_TARGET, "data": 5}),
        frame({"msg_type": "comm_msg"}, {}, {"farandole_record": "x"}, {}),
        frame({"msg_type": "status"}, {}, {}, {"execution_state": []}),
    ],
)
def test_a_strange_message_in_a_journal_hides_no_other_run(store, run, tmp_path, data):
    leave(tmp_path, run, 0, 1)
    (run.folder / LEFT_RECORDS / "kernel-1.frames").write_bytes(data)
    with limited_memory(), warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        complete(store)
    assert [info.id for info in store.list()] == [run.id]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["run.json", "records/kernel-0.frames", "records/.kernel-0.json.tmp"])
@pytest.mark.parametrize("make", [pipe, outside])
def test_a_pipe_or_a_link_in_the_folder_of_a_run_hangs_no_worker_that_stops(store, run, tmp_path, name, make):
    replaced(make, run.folder / name)
    leave(tmp_path, run, 0)
    if name != "run.json":
        assert left(run) == ["kernel-0.frames", "kernel-0.json"]
        assert (run.folder / LEFT_RECORDS / "kernel-0.frames").is_file()
