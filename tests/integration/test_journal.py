"""Tests that no message is lost if connections to a rank break during a run, because the worker keeps a journal."""

import asyncio
import json
import os
import signal

import aiohttp
import pytest
from farandole.driver.kernels import rank_calls
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.recovery.orphaned_runs import complete
from farandole.driver.recovery.reattach import about
from farandole.driver.workers.local import LocalWorkers
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import WorkerStartError
from farandole.protocol import Part
from farandole.runs.store import RunStore

CELL = """
import pathlib, time
import farandole as fd
step = 0
while not pathlib.Path({end!r}).exists():
    print("line", step)
    fd.report(step=step, value=1.0)
    step += 1
    time.sleep(0.01)
print("all", step)
{last}
"""


class Rank:
    """A rank's kernel and the messages received from the kernel. `run` executes code in the kernel as a run."""

    def __init__(self, worker, kernel_id):
        self.text = ""
        self.reports = []
        self.kernel = RankKernel(worker, kernel_id, slot=0, on_records=self.take_records)
        self.kernel.rank = 0

    def take(self, _rank, kind, content, _position):
        if kind == "stream":
            self.text += content["text"]

    def take_records(self, _rank, data, _buffers, _position):
        self.reports += [record["step"] for record in data["records"] if record["kind"] == "report"]

    async def run(self, code, run="20260101-000000-abcd", about=None):
        about = about or {"run": {"id": run, "size": 1, "started": 1.0}, "code": code}
        mark = {"run": run, "about": about}
        _, reply, _ = await asyncio.gather(
            self.kernel.execute(rank_calls.begin(run).expression, silent=True, mark={**mark, "part": Part.BEGIN}),
            self.kernel.execute(code, sink=self.take, mark={"run": run, "part": Part.CELL}),
            self.kernel.execute(rank_calls.end().expression, silent=True, mark={"run": run, "part": Part.END}),
        )
        return reply

    async def received(self, least):
        async with asyncio.timeout(60):
            while len(self.reports) < least:
                await asyncio.sleep(0.02)

    def cut(self):
        """Abort the websocket's connection, as the death of a proxy would."""
        self.kernel._connection._socket._conn.transport.abort()

    def assert_whole(self):
        count = int(self.text.split()[-1])
        assert self.reports == list(range(count))
        assert self.text.splitlines() == [*(f"line {step}" for step in range(count)), f"all {count}"]


@pytest.fixture
async def worker():
    source = LocalWorkers(aiohttp.ClientSession())
    [worker] = await source.start(["r-w0"], WorkerOptions(cluster="r"), print, 120)
    yield worker
    await source.close()


@pytest.fixture
async def rank(worker):
    rank = Rank(worker, await worker.start_kernel(0))
    await rank.kernel.connect()
    assert (await rank.kernel.evaluate(rank_calls.prepare({}).expression)).status == "ok"
    yield rank
    await rank.kernel.close()


async def test_a_connection_that_breaks_repeatedly_loses_nothing(worker, rank, tmp_path):
    end = tmp_path / "end"
    work = asyncio.create_task(rank.run(CELL.format(end=str(end), last="")))
    for _ in range(4):
        await rank.received(len(rank.reports) + 20)
        rank.cut()
    await rank.received(len(rank.reports) + 20)
    end.touch()
    assert (await work).status == "ok"
    rank.assert_whole()
    assert (await rank.kernel.evaluate(rank_calls.identity().expression)).value["pid"] > 0
    # The journal of the first run has ended, so the next run gets a new journal.
    rank.text, rank.reports = "", []
    assert (await rank.run(CELL.format(end=str(end), last=""), "20260101-000000-beef")).status == "ok"
    assert rank.text == "all 0\n"
    assert [one.ended is not None for one in (await worker.records()).records] == [True, True]


async def test_another_driver_receives_everything_from_the_beginning(worker, rank, tmp_path):
    end = tmp_path / "end"
    work = asyncio.create_task(rank.run(CELL.format(end=str(end), last="")))
    await rank.received(20)
    await rank.kernel.close()
    work.cancel()
    other = Rank(worker, rank.kernel.kernel_id)
    [record] = (await worker.records()).records
    assert (record.rank, record.ended, list(record.requests.values())) == (0, None, list(Part))
    assert record.about["code"].startswith("\nimport pathlib")
    following = asyncio.create_task(other.kernel.follow(record, other.take))
    await other.received(40)
    end.touch()
    assert (await following).status == "ok"
    other.assert_whole()
    late = Rank(worker, rank.kernel.kernel_id)
    [record] = (await worker.records()).records
    assert record.ended
    assert (await late.kernel.follow(record, late.take)).status == "ok"
    assert (late.text, late.reports) == (other.text, other.reports)


@pytest.mark.parametrize(
    ("last", "status", "says"),
    [
        ("raise ValueError('late')", "error", "late"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "dead", "killed by signal 9 (SIGKILL)"),
    ],
)
async def test_an_unseen_failure_is_in_the_journal(worker, rank, tmp_path, last, status, says):
    end = tmp_path / "end"
    work = asyncio.create_task(rank.run(CELL.format(end=str(end), last=last)))
    await rank.received(20)
    await rank.kernel.close()
    work.cancel()
    end.touch()
    other = Rank(worker, rank.kernel.kernel_id)
    [record] = (await worker.records()).records
    reply = await other.kernel.follow(record, other.take)
    assert (reply.status, reply.evalue) == (status, says)
    # A killed process may lose messages that it has not yet sent. All messages that were sent arrive once and in order.
    assert other.reports == list(range(len(other.reports)))
    assert len(other.reports) >= 20
    assert other.text.startswith("line 0\nline 1\n")


async def test_a_stopped_kernel_ends_its_journal(worker, rank, tmp_path):
    work = asyncio.create_task(rank.run(CELL.format(end=str(tmp_path / "never"), last="")))
    await rank.received(20)
    [record] = (await worker.records()).records
    other = Rank(worker, rank.kernel.kernel_id)
    following = asyncio.create_task(other.kernel.follow(record, other.take))
    await other.received(20)
    await worker.stop_kernel(rank.kernel.kernel_id)
    assert (await following).evalue == "stopped"
    assert (await work).status == "dead"


async def until(worker, happened):
    """Wait until the worker's only journal is in this state, and return its description."""
    async with asyncio.timeout(60):
        while not (found := (await worker.records()).records) or not happened(found[0]):
            await asyncio.sleep(0.02)
    return found[0]


@pytest.mark.parametrize("receives", [True, False])
async def test_a_worker_is_idle_only_after_the_driver_has_received_the_end_of_its_run(worker, rank, receives):
    network = rank.kernel._connection._socket._conn.transport
    work = asyncio.create_task(rank.run("pass"))
    if receives:
        assert (await work).status == "ok"
    else:
        # The network of the driver's machine fails, but the connection stays open.
        network.pause_reading()
    await until(worker, lambda record: record.ended)
    assert (await worker.info()).idle_seconds is not None
    if receives:
        assert await rank.kernel.worker_answers()
    work.cancel()
    network.abort()
    rank.kernel._connection._closing = True
    record = await until(worker, lambda record: not record.led)
    assert ((await worker.info()).idle_seconds is None) != receives
    other = Rank(worker, rank.kernel.kernel_id)
    assert (await other.kernel.follow(record, other.take)).status == "ok"
    assert (await worker.info()).idle_seconds is not None


async def test_an_idle_journal_sends_heartbeats(worker, rank, tmp_path):
    pid = (await rank.kernel.evaluate(rank_calls.identity().expression)).value["pid"]
    end = tmp_path / "end"
    work = asyncio.create_task(rank.run(CELL.format(end=str(end), last="")))
    await rank.received(1)
    [record] = (await worker.records()).records
    os.kill(pid, signal.SIGSTOP)
    try:
        address = f"{worker.url}farandole/records/{record.run}/{record.kernel}?after=0"
        async with asyncio.timeout(60), worker._session.get(address, headers=worker._headers) as answer:
            while length := int.from_bytes(await answer.content.readexactly(4), "big"):
                await answer.content.readexactly(length)
    finally:
        os.kill(pid, signal.SIGCONT)
    end.touch()
    assert (await work).status == "ok"
    rank.assert_whole()


async def test_a_run_without_a_journal_is_refused(worker):
    with pytest.raises(WorkerStartError, match="there is no journal of run no-such-run") as refused:
        await anext(worker.follow("no-such-run", "no-such-kernel", 0))
    assert refused.value.status == 404


async def test_a_server_stopped_during_a_run_saves_unread_messages(tmp_path):
    source = LocalWorkers(aiohttp.ClientSession())
    [worker] = await source.start(["r-w0"], WorkerOptions(cluster="r"), print, 120)
    store = RunStore(tmp_path / "runs")
    run = store.create(code="x", backend="none", size=1, workers=["r-w0"], cluster="r")
    try:
        rank = Rank(worker, await worker.start_kernel(0))
        await rank.kernel.connect()
        assert (await rank.kernel.evaluate(rank_calls.prepare({}).expression)).status == "ok"
        code = CELL.format(end=str(tmp_path / "never"), last="")
        work = asyncio.create_task(rank.run(code, run.id, about(run)))
        await rank.received(20)
        await rank.kernel.close()
        work.cancel()
        run.let_go()
    finally:
        await source.close()
    info = json.loads((run.folder / "run.json").read_text())
    info["driver"]["started"] -= 1000
    (run.folder / "run.json").write_text(json.dumps(info))
    [restored] = await asyncio.to_thread(complete, store)
    assert "rank 0 (worker r-w0): its process is gone, stopped" in restored.error
    steps = store.load_run(run.id)["step"].to_list()
    assert steps == list(range(len(steps)))
    assert steps[: len(rank.reports)] == rank.reports
