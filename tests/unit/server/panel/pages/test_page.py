"""Tests that a slow page does not delay other pages, and receives the newest messages once its connection is free."""

import asyncio
import json
import logging
import math

import pytest
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore
from farandole.server.panel import wire
from farandole.server.panel.pages import following
from farandole.server.panel.pages import page as pages
from farandole.server.panel.pages.page import Page
from farandole.server.panel.panel import Panel
from farandole.server.panel.runs import RunIndex

from tests.panel import DEADLINE, panel_server
from tests.unit.server.panel.test_wire import misfit


@pytest.fixture
async def panel(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_RUNS", str(tmp_path / "runs"))
    for variable in ("FARANDOLE_HUB_URL", "JUPYTERHUB_API_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    panel = Panel(root=tmp_path, log=logging.getLogger("panel"))
    async with panel.used():
        yield panel


class Slow:
    """A connection that accepts a message only when the test allows it."""

    def __init__(self):
        self.room = asyncio.Semaphore(0)
        self.taken = []
        self.waiting = 0

    def let(self, messages=10_000):
        for _ in range(messages):
            self.room.release()

    async def send(self, message):
        self.waiting += 1
        assert self.waiting == 1, "two messages wait for the page"
        await self.room.acquire()
        self.waiting -= 1
        self.taken.append(json.loads(json.dumps(message)))


async def until(happened):
    async with asyncio.timeout(DEADLINE):
        while not happened():
            await asyncio.sleep(0.02)


async def test_a_slow_page_gets_the_newest_messages_and_delays_nothing(panel):
    slow = Slow()
    sending = asyncio.create_task(Page(panel, slow.send).send_updates())
    await until(lambda: slow.waiting)
    for number in range(1000):
        panel._publish("runs", {"kind": "runs", "runs": [], "total": number})
        panel.notify_pages()
    await asyncio.sleep(0)
    assert slow.taken == []
    panel._loops[1].cancel()
    slow.let()
    await until(lambda: {one["kind"] for one in slow.taken} >= {"clusters", "endpoints", "resources", "runs"})
    totals = [one["total"] for one in slow.taken if one["kind"] == "runs"]
    assert totals == [999]
    sending.cancel()
    await asyncio.wait([sending])


async def test_a_run_that_is_shown_again_is_sent_again(panel):
    """Check that a run is sent again after it was hidden, because the page deletes the data of hidden runs."""
    run = RunStore(panel.store.folder).create(code="", backend="torch", size=1, workers=["c-w0"])
    run.finish(Status.FINISHED)
    slow = Slow()
    page = Page(panel, slow.send)
    watch = {"seen": True, "runs": [run.id], "by_rank": False, "logs": []}
    page.subscribe(watch)
    sending = asyncio.create_task(page.send_updates())
    await until(lambda: panel.topics["runs"].message)
    slow.let(len(panel.topics))
    await until(lambda: len(slow.taken) == len(panel.topics) and slow.waiting)
    page.subscribe({**watch, "runs": []})
    page.subscribe(watch)
    slow.let()
    await until(lambda: [one["kind"] for one in slow.taken].count("run") == 2)
    sending.cancel()
    await asyncio.wait([sending])


def follow(panel, *runs):
    """Open a page that follows runs. Return its connection and the task that sends the messages."""
    slow = Slow()
    slow.let()
    page = Page(panel, slow.send)
    page.subscribe({"seen": False, "runs": [], "followed": list(runs), "by_rank": False, "logs": []})
    return slow, asyncio.create_task(page.send_updates())


def news(slow):
    return [one for one in slow.taken if one["kind"] == "followed"]


async def test_a_followed_run_has_small_messages_only_if_there_is_news(panel, monkeypatch):
    monkeypatch.setattr(following, "FOLLOW_SECONDS", 0.0)
    run = RunStore(panel.store.folder).create(code="", backend="torch", size=1, workers=["c-w0"])
    slow, sending = follow(panel, run.id, "none")
    run.add_log(0, "a line\n")
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"loss": math.nan})))
    await until(lambda: news(slow) and news(slow)[-1]["bad"] == {"loss": 1})
    last = news(slow)[-1]
    assert misfit(last, wire.FollowedMessage) is None
    assert (last["id"], last["summary"]["status"]) == (run.id, "running")
    await asyncio.sleep(2.5)
    assert news(slow)[-1] is last
    run.add_log(0, "a line\n")
    await until(lambda: news(slow)[-1]["activity"] != last["activity"])
    # The page receives no view, and no problem for the run that does not exist.
    assert {one["kind"] for one in slow.taken} <= {"clusters", "endpoints", "resources", "runs", "followed"}
    run.finish(Status.FINISHED)
    sending.cancel()
    await asyncio.wait([sending])


async def test_the_end_of_a_followed_run_is_sent_at_once(panel, monkeypatch):
    monkeypatch.setattr(following, "FOLLOW_SECONDS", 600.0)
    run = RunStore(panel.store.folder).create(code="", backend="torch", size=1, workers=["c-w0"])
    slow, sending = follow(panel, run.id)
    await until(lambda: news(slow))
    run.finish(Status.FAILED, "no data")
    await until(lambda: [one["summary"]["status"] for one in news(slow)] == ["running", "failed"])
    sending.cancel()
    await asyncio.wait([sending])


async def test_the_next_part_of_a_log_is_read_when_the_page_has_received_the_last(panel, monkeypatch):
    run = RunStore(panel.store.folder).create(code="", backend="torch", size=1, workers=["c-w0"])
    run.add_log(0, "x" * 1_000_000)
    run.finish(Status.FINISHED)
    read = []
    take = pages.read_log
    monkeypatch.setattr(pages, "read_log", lambda *arguments: read.append(arguments) or take(*arguments))
    slow = Slow()
    page = Page(panel, slow.send)
    log = {"run": run.id, "rank": 0, "worker": None, "offset": 0}
    page.subscribe({"seen": True, "runs": [], "by_rank": False, "logs": [log]})
    sending = asyncio.create_task(page.send_updates())
    # Accept the three messages that every page receives, and then one chunk of the log.
    await until(lambda: panel.topics["runs"].message)
    slow.let(4)
    await until(lambda: len(slow.taken) == 4 and slow.waiting)
    await asyncio.sleep(0.2)
    assert len(read) <= 2
    slow.let()
    await until(lambda: sum(len(one["part"]["text"]) for one in slow.taken if one["kind"] == "log") == 1_000_000)
    sending.cancel()
    await asyncio.wait([sending])


async def test_a_page_that_keeps_following_a_log_gets_no_part_twice(panel):
    run = RunStore(panel.store.folder).create(code="", backend="torch", size=1, workers=["c-w0"])
    slow = Slow()
    slow.let()
    page = Page(panel, slow.send)
    log = {"run": run.id, "rank": 0, "worker": None, "offset": 0}
    watch = {"seen": True, "runs": [], "by_rank": False, "logs": [log]}
    page.subscribe(watch)
    sending = asyncio.create_task(page.send_updates())

    def text():
        return "".join(one["part"]["text"] for one in slow.taken if one["kind"] == "log")

    for number in range(3):
        run.add_log(0, f"{number}\n")
        run.flush()
        await until(lambda number=number: text().endswith(f"{number}\n"))
        page.subscribe(watch)
    assert text() == "0\n1\n2\n"
    run.finish(Status.FINISHED)
    sending.cancel()
    await asyncio.wait([sending])


async def test_a_silent_stream_sends_heartbeats(panel, monkeypatch):
    monkeypatch.setattr(pages, "BEAT_SECONDS", 0.1)
    slow = Slow()
    slow.let()
    sending = asyncio.create_task(Page(panel, slow.send).send_updates())
    await until(lambda: [one["kind"] for one in slow.taken].count("beat") >= 2)
    sending.cancel()
    await asyncio.wait([sending])


async def test_a_page_that_does_not_read_uses_no_memory(tmp_path, monkeypatch):
    """Check over a real connection that messages are skipped instead of buffered if a page does not read them."""
    async with panel_server(tmp_path, monkeypatch) as server, server.stream() as stream:
        await stream.until("runs")
        panel = panel_of(server)
        stream.socket._reader._protocol.pause_reading()
        big = "x" * 100_000
        for number in range(300):
            panel._publish("runs", {"kind": "runs", "runs": [], "total": number, "padding": big})
            panel.notify_pages()
            await asyncio.sleep(0.005)
        published = panel.topics["runs"].version
        stream.socket._reader._protocol.resume_reading()
        last = await stream.until("runs", lambda said: said["total"] == 299)
        assert last["total"] == 299
        heard = [one for one in stream.heard if one["kind"] == "runs"]
        # The operating system buffers a few of the 30 MB that were published, so some old messages may arrive.
        assert len(heard) < published - 100


def panel_of(server):
    rules = [*server.app.web_app.wildcard_router.rules, *server.app.web_app.default_router.rules]
    nested = [inner for rule in rules for inner in getattr(rule.target, "rules", [rule])]
    return next(rule.target_kwargs["panel"] for rule in nested if "panel" in (rule.target_kwargs or {}))


def test_a_missing_store_has_no_runs(tmp_path):
    index = RunIndex(tmp_path / "none", tmp_path)
    assert index.newest(()) == {"runs": [], "offset": 0, "total": 0}
