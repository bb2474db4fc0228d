"""Tests for the threads that run restic for the panel."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from farandole.exceptions import SnapshotError
from farandole.server.panel.snapshots.threads import in_thread

from tests.unit.snapshots.conftest import PASSWORD

MANY = 100
"""More than an executor of asyncio has threads."""
ENDS = """
import asyncio
import threading
from farandole.server.panel.snapshots import threads

threads.END_SECONDS = 0.1

async def main():
    begun = threading.Event()
    threads.in_thread(lambda: (begun.set(), threading.Event().wait()))
    await threads.in_thread(begun.wait)
    print("begun")

asyncio.run(main())
"""
RESTORES = """
import asyncio
import sys
from pathlib import Path
from farandole.server.panel.snapshots.threads import in_thread
from farandole.snapshots.choice import PARTIAL
from farandole.snapshots.connection import Repository
from farandole.snapshots.snapshots import Snapshots

home, url, password = Path(sys.argv[1]), *sys.argv[2:]

async def main():
    snapshots = Snapshots(home=home, connect=lambda: Repository(url=url, password=password))
    restoring = in_thread(lambda: snapshots.restore(home / "random"))
    while not list(home.glob(f"{PARTIAL}*/**/random")):
        assert not restoring.done()
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


async def test_the_result_or_the_error_is_returned():
    def fail():
        raise SnapshotError("The repository is full.")

    assert await in_thread(lambda: 1) == 1
    with pytest.raises(SnapshotError, match="is full"):
        await in_thread(fail)


async def test_work_that_takes_long_keeps_nothing_waiting():
    go = threading.Event()
    waiting = [in_thread(lambda: go.wait(30)) for _ in range(MANY)]
    async with asyncio.timeout(30):
        assert await in_thread(lambda: "quick") == "quick"
        assert not any(one.done() for one in waiting)
        go.set()
        assert await asyncio.gather(*waiting) == [True] * MANY


async def test_a_request_that_is_cancelled_does_not_disturb_the_work():
    go, done = threading.Event(), threading.Event()
    future = in_thread(lambda: (go.wait(30), done.set()))
    future.cancel()
    go.set()
    assert await in_thread(lambda: done.wait(30))


def test_the_process_ends_while_work_goes_on():
    ended = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "begun\n", "")


@pytest.mark.release
def test_a_restore_that_the_end_of_the_server_interrupts_leaves_nothing(site):
    (site.home / "random").write_bytes(os.urandom(256 * 2**20))
    site.snapshots.take()
    (site.home / "random").unlink()
    command = [sys.executable, "-c", RESTORES, site.home, site.repository, PASSWORD]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert list(site.home.iterdir()) == []
