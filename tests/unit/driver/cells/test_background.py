"""Tests for runs in the background: how they end, what they print, and how a driver detaches from them."""

import asyncio
import json
import threading
import time

import pytest
from farandole.driver.cells.background import BackgroundRun
from farandole.driver.kernels.replies import Reply
from farandole.exceptions import DeadlineError, RankError, UsageError
from farandole.notebook.listing import RunList
from farandole.protocol import Status
from farandole.runs.store import RunStore


@pytest.fixture
def run(tmp_path):
    return RunStore(tmp_path).create(code="x", backend="none", size=1, workers=["c-w0"])


def check(_run, replies):
    if any(reply.status != "ok" for reply in replies):
        raise RankError("the cell failed on rank 0")


def fail(run, exc, ended=None):
    run.finish(Status.FAILED, str(exc), ended=ended)


class Cell:
    """A cell that prints a line, and ends when the test sets `end`."""

    def __init__(self, background):
        self.end = asyncio.Event()
        self.background = background
        self.status = "ok"

    async def work(self):
        self.background.relay.put(0, "stream", {"name": "stdout", "text": "hello\n"})
        await self.end.wait()
        return [Reply(rank=0, worker="c-w0", status=self.status, ended=time.monotonic())]


async def begun(run, **options):
    background = BackgroundRun(run)
    cell = Cell(background)
    await background.begin(cell.work(), check=check, fail=fail, **options)
    return background, cell


def shown(background):
    blocks = []
    background.show(blocks.append)
    return "".join(block.text for block in blocks)


async def waited(background, **options):
    return await asyncio.to_thread(background.wait, lambda _block: None, **options)


async def test_a_run_that_succeeds(run):
    background, cell = await begun(run)
    assert run.status is Status.RUNNING
    with pytest.raises(DeadlineError, match=r"within 0.2 s; it continues"):
        await waited(background, timeout=0.2)
    cell.end.set()
    assert await waited(background, timeout=30) is run
    assert run.status is Status.FINISHED


async def test_a_failed_run_raises_the_error_of_its_cell(run):
    background, cell = await begun(run)
    cell.status = "error"
    cell.end.set()
    with pytest.raises(RankError, match="failed on rank 0"):
        await waited(background, timeout=30)
    assert (run.status, run.error) == (Status.FAILED, "the cell failed on rank 0")


async def test_output_is_kept_until_it_is_shown_and_shown_once(run):
    background, cell = await begun(run)
    cell.end.set()
    await waited(background, timeout=30)
    assert shown(background) == ""
    other, cell = await begun(run)
    cell.end.set()
    await asyncio.to_thread(other._over.wait, 30)
    assert shown(other) == "hello\n"


async def test_a_run_that_has_already_ended_keeps_its_end_time(run):
    background, cell = await begun(run, ended=run.started + 5)
    cell.end.set()
    await waited(background, timeout=30)
    assert run.info.seconds == pytest.approx(5)


async def test_a_driver_that_releases_a_run_does_not_change_it(run):
    background, _ = await begun(run)
    await background.let_go()
    assert json.loads((run.folder / "run.json").read_text())["status"] == "running"
    with pytest.raises(UsageError, match="attach to it with `%cluster attach`"):
        await waited(background, timeout=30)


async def test_a_watcher_sees_the_run_continue_and_end(run):
    background, cell = await begun(run)
    seen = []
    background.watch(lambda watched: lambda: seen.append(watched.status))
    async with asyncio.timeout(30):
        while not seen:
            await asyncio.sleep(0.02)
    cell.end.set()
    await waited(background, timeout=30)
    assert (seen[0], seen[-1]) == (Status.RUNNING, Status.FINISHED)


def test_the_list_shows_runs_that_no_cell_waits_for(run):
    assert [row[2] for row in RunList([run.info], detached={run.id}).rows()] == ["running (detached)"]
    assert [row[2] for row in RunList([run.info]).rows()] == ["running"]
    run.finish(Status.FINISHED)
    assert [row[2] for row in RunList([run.info], detached={run.id}).rows()] == ["finished"]


async def test_a_slow_volume_does_not_block_the_loop_at_the_end(run, monkeypatch):
    may_end, writes = threading.Event(), threading.Event()
    close = run._sink.close

    def slow():
        writes.set()
        assert may_end.wait(30)
        close()

    monkeypatch.setattr(run._sink, "close", slow)
    background, cell = await begun(run)
    cell.end.set()
    async with asyncio.timeout(30):
        # The event loop must not block while the run's files are being closed.
        while not writes.is_set():
            await asyncio.sleep(0.01)
    may_end.set()
    await waited(background, timeout=30)
    assert run.status is Status.FINISHED
