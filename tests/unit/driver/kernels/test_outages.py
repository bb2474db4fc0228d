"""Tests when the notices about a hub that does not answer are given, and what they say."""

import asyncio
import re
import time
from types import SimpleNamespace

import pytest
from farandole.driver.kernels.outages import OutageNotices

SECONDS = 10.0
SILENT = re.compile(
    r"no connection to the hub since \d\d:\d\d \S+\. The ranks continue, and their output comes when the hub answers "
    r"again; an interrupt ends the waiting"
)
BACK = "the hub answers again"


class Worker:
    """A worker that counts how often it was asked whether it answers."""

    def __init__(self):
        self.silent, self.asked = None, 0

    @property
    def silent_since(self):
        self.asked += 1
        return self.silent


class Cell:
    """A cell on two workers, and the notices that were given."""

    def __init__(self):
        self.workers = [Worker(), Worker()]
        self.notices = []
        group = SimpleNamespace(kernels=[SimpleNamespace(worker=worker) for worker in self.workers for _ in range(2)])
        self.over = asyncio.Event()
        outages = OutageNotices(group, self.notices.append, seconds=SECONDS, pause=0.001)
        self.task = asyncio.create_task(outages.during(self.over.wait()))

    def is_silent(self, *seconds):
        """Make the hub and each worker silent for a time, or let a worker answer if it is None."""
        for worker, one in zip(self.workers, seconds, strict=True):
            worker.silent = None if one is None else time.time() - one

    async def until(self, happened):
        async with asyncio.timeout(20):
            while not happened():
                await asyncio.sleep(0.001)

    async def until_asked(self):
        asked = self.workers[1].asked
        await self.until(lambda: self.workers[1].asked > asked + 10)

    async def until_said(self, notices):
        await self.until(lambda: len(self.notices) >= notices)


@pytest.fixture
async def cell():
    cell = Cell()
    yield cell
    cell.over.set()
    assert await cell.task


async def test_an_outage_gets_a_notice_after_some_seconds_and_one_when_it_is_over(cell):
    cell.is_silent(SECONDS - 5, SECONDS - 5)
    await cell.until_asked()
    assert cell.notices == []
    cell.is_silent(SECONDS + 1, SECONDS + 2)
    await cell.until_said(1)
    assert SILENT.fullmatch(cell.notices[0])
    cell.is_silent(SECONDS + 3, None)
    await cell.until_asked()
    assert len(cell.notices) == 1
    cell.is_silent(None, None)
    await cell.until_said(2)
    assert cell.notices[1] == BACK
    cell.is_silent(None, SECONDS + 1)
    await cell.until_said(3)
    assert SILENT.fullmatch(cell.notices[2])


async def test_a_short_outage_gets_no_notice(cell):
    cell.is_silent(SECONDS - 5, None)
    await cell.until_asked()
    cell.is_silent(None, None)
    await cell.until_asked()
    assert cell.notices == []


async def test_notices_end_with_the_cell(cell):
    cell.over.set()
    await cell.task
    cell.is_silent(SECONDS + 1, SECONDS + 1)
    asked = cell.workers[1].asked
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert (cell.notices, cell.workers[1].asked) == ([], asked)
