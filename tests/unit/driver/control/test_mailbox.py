"""Tests for a driver's mailbox: its status file, requests and answers, and the mailboxes of drivers that have ended."""

import asyncio
import json
import os
import shutil
import threading
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from farandole.driver.control import mailbox
from farandole.driver.control.control_service import ControlService
from farandole.driver.control.mailbox import MAILBOXES, Mailbox, ask, driver_statuses
from farandole.driver.data.status import DaskStatus, DaskWorker
from farandole.exceptions import ClusterExistsError, DeadlineError, FarandoleError, NoClusterError
from farandole.runs.folder import this_process
from farandole.runs.origin import Origin
from farandole.runs.store import RunStore

from tests.strange import FILES, replaced

DEADLINE = 60


class Core:
    """A fake of a cluster's core with the attributes that the mailbox uses. It has one worker with one rank."""

    name, backend, ended, busy = "c", "torch", "", False
    service = None
    source = SimpleNamespace(hub=None)

    def __init__(self):
        self.kernel = SimpleNamespace(rank=0, alive=True)
        self.handles = [SimpleNamespace(worker=SimpleNamespace(name="c-w0"), kernels=[self.kernel])]
        self.workers = ["c-w0"]
        self.may_scale = asyncio.Event()
        self.refusal = None
        self.scaled, self.calls = None, []
        self.training = SimpleNamespace(going=[], store=None)

    async def scale(self, workers, _progress, *, wanted):
        await self.may_scale.wait()
        assert wanted()
        if self.refusal:
            raise self.refusal
        self.scaled = workers

    async def interrupt(self):
        self.calls.append("interrupt")
        self.training.going = []

    async def break_off_starts(self):
        self.calls.append("break off")

    async def stop(self):
        self.calls.append("stop")
        self.handles, self.workers = [], []

    def check_not_ended(self):
        if self.ended:
            raise NoClusterError(self.ended)


@pytest.fixture
def core(tmp_path):
    core = Core()
    core.training.store = RunStore(tmp_path)
    return core


@asynccontextmanager
async def led(core):
    """Serve the cluster's mailbox, and yield a function that returns the status once the status meets a condition."""
    store, messages = core.training.store.folder, []
    leading = ControlService(
        core, core.training, local=False, origin=Origin(notebook="/home/n.ipynb"), progress=messages.append
    )
    await leading.begin()

    async def sign(wanted=lambda _sign: True):
        async with asyncio.timeout(DEADLINE):
            while not (found := driver_statuses(store)) or not wanted(found[0]):
                await asyncio.sleep(0.02)
        return found[0]

    try:
        yield sign
    finally:
        await leading.end()
    assert not (store / MAILBOXES).exists()


async def test_the_status_file_describes_the_cluster(core):
    async with led(core) as sign:
        first = await sign()
        assert (first.cluster, first.backend, first.notebook) == ("c", "torch", "/home/n.ipynb")
        assert (first.workers, first.ranks, first.runs) == (("c-w0",), (("c-w0", 0, True),), ())
        core.kernel.alive = False
        core.training.going = ["r"]
        await sign(lambda now: now.ranks == (("c-w0", 0, False),) and now.runs == ("r",))


async def test_the_status_of_dask_is_published_while_it_runs(core):
    worker = DaskWorker(running=1, waiting=2, done=3, memory=4, memory_limit=5, spilled=6, paused=None)
    status = DaskStatus(tasks=7, done=3, failed=1, workers={"c-w0": worker})
    async with led(core) as sign:
        assert (await sign()).dask is None
        core.service = SimpleNamespace(status=status)
        assert (await sign(lambda now: now.dask)).dask == status
        core.service = None
        await sign(lambda now: now.dask is None)


async def test_the_wanted_size_is_shown_until_scaling_is_done(core):
    async with led(core) as sign:
        with pytest.raises(DeadlineError, match="is still handling the request"):
            await ask(await sign(), "scale", workers=3, seconds=0)
        assert (await sign(lambda now: now.wanted == 3)).error is None
        core.may_scale.set()
        await sign(lambda now: now.wanted is None)
        assert core.scaled == 3
        await ask(await sign(), "scale", workers=4)
        assert core.scaled == 4


async def test_the_reason_of_a_failed_scale_is_answered_and_stays_in_the_status(core):
    core.may_scale.set()
    core.refusal = ClusterExistsError("worker c-w1 is there already")
    async with led(core) as sign:
        with pytest.raises(FarandoleError, match="c-w1 is there already"):
            await ask(await sign(), "scale", workers=2)
        assert (await sign(lambda now: now.error)).error == "worker c-w1 is there already"
        core.refusal = None
        await ask(await sign(), "scale", workers=2)
        await sign(lambda now: now.error is None)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"do": "scale", "workers": 0}, "at least 1 worker, not 0"),
        ({"do": "scale", "workers": "many"}, "does not understand"),
        ({"do": "dance"}, "does not understand"),
        ({"do": "stop_run", "run": "other"}, "run other is not in progress on this cluster"),
    ],
)
async def test_an_impossible_request_gets_an_answer(core, request_, message):
    async with led(core) as sign:
        with pytest.raises(FarandoleError, match=message):
            await ask(await sign(), **request_)


async def test_an_unreadable_request_does_not_delay_others(core):
    core.may_scale.set()
    async with led(core) as sign:
        folder = (await sign()).folder
        (folder / "ask-0.json").mkdir()
        for number, text in enumerate((b"{", b"3", b"\xff"), start=1):
            (folder / f"ask-{number}.json").write_bytes(text)
        await ask(await sign(), "scale", workers=4, seconds=DEADLINE)
        assert core.scaled == 4
        async with asyncio.timeout(DEADLINE):
            while len(answers := sorted(folder.glob("answer-?.json"))) < 3:
                await asyncio.sleep(0.02)
        assert all("does not understand" in json.loads(answer.read_bytes())["error"] for answer in answers)


def test_requests_are_served_in_order(tmp_path):
    for time, name in ((3, "a"), (1, "c"), (2, "b")):
        (tmp_path / f"ask-{name}.json").write_text(name)
        os.utime(tmp_path / f"ask-{name}.json", (time, time))
    assert mailbox._take_requests(tmp_path) == [("c", b"c"), ("b", b"b"), ("a", b"a")]


async def test_a_run_is_stopped_by_its_driver(core):
    core.training.going = ["r"]
    async with led(core) as sign:
        await ask(await sign(), "stop_run", run="r")
        assert core.calls == ["interrupt"]


async def test_a_cluster_reports_that_it_was_stopped_from_outside(core):
    core.busy = True
    async with led(core) as sign:
        await ask(await sign(), "stop")
        assert core.calls == ["interrupt", "break off", "stop"]
        assert "was stopped from the panel. `%cluster start`" in core.ended
        with pytest.raises(FarandoleError, match="was stopped from the panel"):
            await ask(await sign(), "stop")


async def test_a_request_without_a_reader_is_withdrawn(core, monkeypatch, tmp_path):
    monkeypatch.setattr(mailbox, "ANSWER_SECONDS", 0.3)
    async with led(core) as sign:
        old = await sign()
    with pytest.raises(FarandoleError, match=r"has not accepted the request within 0.3 s.*%cluster attach"):
        await ask(old, "stop")
    assert not old.folder.exists()


async def test_mailboxes_of_ended_drivers_are_removed(tmp_path):
    here, far = this_process(), {**this_process(), "host": "other"}
    for name, driver in (("gone", {**here, "started": 1.0}), ("far", far), ("far-gone", far)):
        folder = tmp_path / MAILBOXES / name
        folder.mkdir(parents=True)
        known = {"cluster": name, "local": False, "backend": "none", "notebook": "", "kernel": "", "since": 1.0}
        empty = {"busy": False, "workers": [], "ranks": [], "runs": [], "wanted": None, "error": None}
        (folder / "desk.json").write_text(json.dumps({**known, **empty, "driver": driver}))
    os.utime(tmp_path / MAILBOXES / "far-gone" / "desk.json", (1, 1))
    (tmp_path / MAILBOXES / "half").mkdir()
    (tmp_path / MAILBOXES / "torn").mkdir()
    (tmp_path / MAILBOXES / "torn" / "desk.json").write_text("{")
    for name, left in (("left", "ask-1.json"), ("left-torn", "desk.json")):
        (tmp_path / MAILBOXES / name).mkdir()
        (tmp_path / MAILBOXES / name / left).write_text("{")
        os.utime(tmp_path / MAILBOXES / name / left, (1, 1))
        os.utime(tmp_path / MAILBOXES / name, (1, 1))
    assert [sign.cluster for sign in driver_statuses(tmp_path)] == ["far"]
    assert sorted(path.name for path in (tmp_path / MAILBOXES).iterdir()) == ["far", "half", "torn"]


def test_a_link_in_place_of_the_mailboxes_removes_no_folder_elsewhere(tmp_path):
    """In a store that a group shares, another user may have made the link, for example to the user's home."""
    home, store = tmp_path / "home", tmp_path / "runs"
    (home / "thesis").mkdir(parents=True)
    os.utime(home / "thesis", (1, 1))
    store.mkdir()
    (store / MAILBOXES).symlink_to(home)
    assert driver_statuses(store) == []
    assert (home / "thesis").is_dir()


async def test_no_mailbox_is_written_through_a_link(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / MAILBOXES).symlink_to(tmp_path / "home")
    with pytest.raises(OSError, match="is a symbolic link"):
        await Mailbox(tmp_path, dict, {})._poll()
    assert list((tmp_path / "home").iterdir()) == []


async def test_a_driver_refreshes_its_status(core, monkeypatch):
    monkeypatch.setattr(mailbox, "TOUCH_SECONDS", 0.0)
    async with led(core) as sign:
        path = (await sign()).folder / "desk.json"
        os.utime(path, (1, 1))
        async with asyncio.timeout(DEADLINE):
            while path.stat().st_mtime == 1:
                await asyncio.sleep(0.02)
            path.unlink()
            while not path.exists():
                await asyncio.sleep(0.02)


async def test_an_unwritable_store_does_not_affect_the_driver(tmp_path):
    (tmp_path / MAILBOXES).write_text("in the way")
    serving = asyncio.create_task(Mailbox(tmp_path, dict, {}).serve())
    done, _ = await asyncio.wait([serving], timeout=2 * mailbox.POLL_SECONDS)
    assert not done
    (tmp_path / MAILBOXES).unlink()
    async with asyncio.timeout(DEADLINE):
        while not list((tmp_path / MAILBOXES).glob("*/desk.json")):
            await asyncio.sleep(0.05)
    serving.cancel()
    await asyncio.wait([serving])


async def test_a_write_in_progress_does_not_recreate_a_removed_mailbox(tmp_path, monkeypatch):
    writing, go, done = (threading.Event() for _ in range(3))
    write = mailbox.write_atomically

    def slowly(path, data):
        writing.set()
        assert go.wait(DEADLINE)
        write(path, data)
        done.set()

    monkeypatch.setattr(mailbox, "write_atomically", slowly)
    serving = asyncio.create_task(Mailbox(tmp_path, dict, {}).serve())
    assert await asyncio.to_thread(writing.wait, DEADLINE)
    serving.cancel()
    asyncio.get_running_loop().call_later(0.1, go.set)
    await asyncio.wait([serving])
    assert await asyncio.to_thread(done.wait, DEADLINE)
    assert list(tmp_path.iterdir()) == []


async def test_old_answers_are_removed(core, monkeypatch):
    monkeypatch.setattr(mailbox, "POLL_SECONDS", 0.01)
    core.may_scale.set()
    async with led(core) as sign:
        there = await sign()
        for _ in range(mailbox.KEPT_ANSWERS + 5):
            await ask(there, "scale", workers=2)
        assert len(list(there.folder.glob("answer-*"))) <= mailbox.KEPT_ANSWERS
        assert not list(there.folder.glob("ask-*"))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", FILES)
async def test_a_strange_request_hangs_no_driver(core, make):
    async with led(core) as sign:
        status = await sign()
        replaced(make, status.folder / "ask-strange.json")
        core.may_scale.set()
        await ask(status, "scale", workers=3)
        assert core.scaled == 3


@pytest.mark.parametrize(
    "text", ["[" * 50_000, '{"do": "scale", "workers": 1e999}', "5", '{"do": []}', '{"do": "scale"}']
)
async def test_a_request_that_makes_no_sense_is_answered(core, text):
    async with led(core) as sign:
        status = await sign()
        (status.folder / "ask-1.json").write_text(text)
        answer = status.folder / "answer-1.json"
        async with asyncio.timeout(DEADLINE):
            while not answer.exists():
                await asyncio.sleep(0.02)
        assert "the driver does not understand" in json.loads(answer.read_text())["error"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", FILES)
async def test_a_strange_status_hides_no_other_driver(core, make):
    async with led(core) as sign:
        status = await sign()
        (status.folder.parent / "strange").mkdir()
        replaced(make, status.folder.parent / "strange" / "desk.json")
        assert [one.cluster for one in driver_statuses(core.training.store.folder)] == ["c"]
        shutil.rmtree(status.folder.parent / "strange")
