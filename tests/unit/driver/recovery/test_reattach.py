"""Tests for the recorded runs that a driver takes over, and for how it treats ranks without a journal."""

import asyncio
import json
import os
import shutil
import subprocess
import sys

import aiohttp
import psutil
import pytest
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.recovery import reattach
from farandole.driver.recovery.reattach import FoundRun, RunReader, about, is_led, restore_run
from farandole.driver.workers.journal import JournalInfo, WorkerJournal
from farandole.driver.workers.worker import GONE, Worker
from farandole.exceptions import RunNotFoundError
from farandole.protocol import RECORD_NUMBER, RECORD_RUN, Part, Report, Status, report_to_json
from farandole.runs.lifecycle.heartbeat import SIGNS
from farandole.runs.lifecycle.tombstones import marked_as_deleted
from farandole.runs.store import RunStore
from jupyter_server.services.kernels.connection.base import serialize_msg_to_ws_v1


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


@pytest.fixture
def run(store):
    run = store.create(code="x", backend="none", size=2, workers=["c-w0", "c-w1"])
    for rank in range(2):
        record = report_to_json(Report(rank=rank, time=1.0, step=0, values={"loss": 0.5}))
        run.add_records(rank, record, position=("k", rank + 1))
        run.add_log(rank, "line 0\n")
    run.flush()
    return run


@pytest.fixture
async def worker():
    async with aiohttp.ClientSession() as session:
        yield Worker(name="c-w0", url="http://127.0.0.1:9/", token="", session=session)


def found(run, worker, *, ended=None, led=False, ranks=(0, 1)):
    common = {"run": run.id, "kernel": "k", "requests": {}, "led": led, "count": 3, "about": about(run)}
    records = [(worker, JournalInfo(**common, rank=rank, ended=ended)) for rank in ranks]
    return FoundRun(id=run.id, journals=records)


def as_if_its_driver_was_killed(run):
    """Change run.json so that the run's driver is a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    path = run.folder / "run.json"
    info = json.loads(path.read_text())
    info["driver"]["pid"] = process.pid
    path.write_text(json.dumps(info))


async def test_a_run_with_a_known_end_is_not_taken_over(store, run, worker, tmp_path):
    assert found(run, worker).is_news(store)
    assert found(run, worker, ended=5.0).is_news(store)
    run.finish(Status.FAILED, "why")
    assert not found(run, worker, ended=5.0).is_news(store)
    assert found(run, worker, ended=5.0).is_news(RunStore(tmp_path / "other"))


async def test_a_deleted_run_that_has_ended_is_not_taken_over(store, run, worker, tmp_path):
    run.let_go()
    with marked_as_deleted(run.folder):
        shutil.rmtree(run.folder)
    ended = found(run, worker, ended=5.0)
    assert not ended.is_news(store)
    with pytest.raises(RunNotFoundError, match=f"run {run.id} has been deleted, so it is not taken over"):
        restore_run(ended, store, write=True)
    assert not run.folder.exists()
    assert ended.is_news(RunStore(tmp_path / "other"))


async def test_a_deleted_run_comes_back_if_its_ranks_continue(store, run, worker):
    run.let_go()
    with marked_as_deleted(run.folder):
        shutil.rmtree(run.folder)
    going = found(run, worker)
    assert going.is_news(store)
    again = restore_run(going, store, write=True)
    assert store.find(run.id).status is Status.RUNNING
    assert not store.has_deleted(run.id)
    again.finish(Status.FINISHED)
    assert not found(run, worker, ended=5.0).is_news(store)


async def test_workers_are_right_about_a_driver_on_another_host(store, run, worker):
    run.let_go()
    path = run.folder / "run.json"
    info = json.loads(path.read_text())
    path.write_text(json.dumps({**info, "driver": {**info["driver"], "host": "another-container"}}))
    for name in SIGNS:
        if (run.folder / name).exists():
            os.utime(run.folder / name, (1, 1))
    assert store.find(run.id).status is Status.LOST
    assert found(run, worker, led=True).is_led(store)
    assert not found(run, worker, led=False).is_led(store)


async def test_a_recently_killed_driver_does_not_lead(store, run, worker):
    assert found(run, worker, led=True).is_led(store)
    assert not found(run, worker, led=False).is_led(store)
    as_if_its_driver_was_killed(run)
    assert not found(run, worker, led=True).is_led(store)


def as_if_another_process_leads(run):
    """Change run.json so that the run's driver is the parent of this process, which is still running."""
    path = run.folder / "run.json"
    info = json.loads(path.read_text())
    parent = psutil.Process().parent()
    info["driver"] = {**info["driver"], "pid": parent.pid, "started": parent.create_time()}
    path.write_text(json.dumps(info))


class Server:
    """A worker that first reports ``times`` times that no driver reads its journal, and then that a driver reads it."""

    name = "c-w0"

    def __init__(self, run, times):
        self.run = run
        self.times = times

    async def records(self):
        self.times -= 1
        return WorkerJournal(kernels=("k",), records=(found(self.run, self, led=self.times < 0).journals[0][1],))


async def test_a_driver_that_is_reconnecting_leads(store, run):
    as_if_another_process_leads(run)
    assert await is_led(found(run, Server(run, times=2)), store, seconds=30)
    assert not await is_led(found(run, Server(run, times=1000)), store, seconds=0.1)


async def test_runs_of_this_process_or_of_a_dead_one_are_not_waited_for(store, run):
    untouched = Server(run, times=2)
    assert not await is_led(found(run, untouched), store, seconds=30)
    as_if_its_driver_was_killed(run)
    assert not await is_led(found(run, untouched), store, seconds=30)
    assert untouched.times == 2


async def test_a_run_ends_with_its_last_rank(run, worker):
    assert found(run, worker, ended=5.0).ended == 5.0
    assert found(run, worker).ended is None


async def test_a_rank_without_a_journal_is_dead_and_its_files_keep_its_output(store, run, worker):
    half = found(run, worker, ranks=(0,))
    assert half.missing == [1]
    run.let_go()
    with (run.folder / "logs/rank-1.log").open("a") as log:
        log.write("its last words")  # No journal has this line, so it must stay in the log.
    again = restore_run(half, store, write=True)
    assert again.dataframe()["rank"].tolist() == [0, 1]
    assert again.ranks()[1].log.lines() == ["line 0", "its last words"]
    again.finish(Status.FAILED)
    assert len(store.load_run(run.id)) == 2
    assert (run.folder / "logs/rank-1.log").read_text() == "line 0\nits last words"
    _, reader = half.readers(lambda *_: None)
    assert reader.caught_up
    reply = await reader.read(lambda *_: None)
    assert (reply.rank, reply.worker, reply.status, reply.evalue) == (1, "c-w1", "dead", GONE)


class LongRecord(Worker):
    """A worker that sends its whole journal but keeps the connection open, as may happen behind a proxy."""

    def __init__(self, said):
        super().__init__(name="c-w0", url="", token="", session=None)
        self.said = said
        self.silent = asyncio.Event()
        self.asked = 0
        self.kind = "stream"
        self.pause = 0.05

    async def records(self):
        self.asked += 1
        fields = {"ended": None, "led": False, "count": self.said, "about": {}, "rank": 0}
        return WorkerJournal(kernels=(), records=(JournalInfo(run="r", kernel="k", requests={}, **fields),))

    async def follow(self, run, _kernel_id, after):
        for number in range(after + 1, self.said + 1):
            await asyncio.sleep(self.pause)
            numbers = {RECORD_NUMBER: number, RECORD_RUN: run}
            content = {"name": "stdout", "text": f"{number}\n", "status": "ok"}
            parts = [json.dumps(part).encode() for part in ({"msg_type": self.kind}, {"msg_id": "c"}, numbers, content)]
            yield serialize_msg_to_ws_v1(parts, "iopub")
        self.silent.set()
        await asyncio.Event().wait()


def reader_of(worker):
    fields = {"ended": None, "led": False, "count": 3, "about": {}}
    record = JournalInfo(run="r", kernel="k", rank=0, requests={"c": Part.CELL, "d": Part.END}, **fields)
    return RunReader(RankKernel(worker, "k", slot=0), record, worker.name)


async def test_a_dead_ranks_journal_is_read_without_waiting_for_more(monkeypatch):
    monkeypatch.setattr(reattach, "LAST_WORDS_SECONDS", 0.5)
    worker, output = LongRecord(said=20), []
    reader, seen = reader_of(worker), RankKernel(worker, "k", slot=0)
    reading = asyncio.create_task(reader.read(lambda *said: output.append(said[2]["text"]), seen))
    # The websocket reports the rank's death before the journal has been read.
    seen.mark_dead("killed by signal 9 (SIGKILL)")
    async with asyncio.timeout(60):
        reply = await reading
    assert (reply.status, reply.evalue) == ("dead", "killed by signal 9 (SIGKILL)")
    assert output == [f"{number}\n" for number in range(1, 21)]
    assert not reader.kernel.alive


async def test_a_dead_ranks_journal_may_arrive_late(monkeypatch):
    monkeypatch.setattr(reattach, "LAST_WORDS_SECONDS", 0.05)
    worker, output = LongRecord(said=3), []
    worker.pause = 0.5
    seen = RankKernel(worker, "k", slot=0)
    seen.mark_dead("ended while the driver was not connected")
    async with asyncio.timeout(60):
        reply = await reader_of(worker).read(lambda *said: output.append(said[2]["text"]), seen)
    assert reply.status == "dead"
    assert output == ["1\n", "2\n", "3\n"]
    assert worker.asked > 3


async def test_a_rank_whose_end_was_received_did_not_die_later(monkeypatch):
    monkeypatch.setattr(reattach, "LAST_WORDS_SECONDS", 0.05)
    worker = LongRecord(said=1)
    worker.kind = "execute_reply"
    seen = RankKernel(worker, "k", slot=0)
    seen.mark_dead("killed by signal 9 (SIGKILL)")
    async with asyncio.timeout(60):
        assert (await reader_of(worker).read(lambda *_: None, seen)).status == "ok"


async def test_a_live_rank_may_be_silent(monkeypatch):
    monkeypatch.setattr(reattach, "LAST_WORDS_SECONDS", 0.05)
    worker = LongRecord(said=1)
    reading = asyncio.create_task(reader_of(worker).read(lambda *_: None, RankKernel(worker, "k", slot=0)))
    await worker.silent.wait()
    done, _ = await asyncio.wait([reading], timeout=0.5)
    assert not done
    reading.cancel()
    await asyncio.wait([reading])
