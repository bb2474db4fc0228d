"""Tests that a notice of the driver's thread appears in the cell that started the work, even after the cell ended."""

import time

import pytest
from jupyter_client.manager import start_new_kernel

DEADLINE = 60


@pytest.fixture
def client():
    manager, client = start_new_kernel(startup_timeout=DEADLINE)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def message(client, wanted):
    """Return the next output message for which `wanted` returns True."""
    end = time.monotonic() + DEADLINE
    while True:
        found = client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
        if wanted(found):
            return found


def test_output_appears_by_itself_in_the_cell_that_started_the_work(client, tmp_path):
    flag = tmp_path / "stopped"
    first = client.execute(
        "import asyncio, pathlib\n"
        "from farandole.driver.loop import LoopThread\n"
        "async def watch():\n"
        f"    while not pathlib.Path({str(flag)!r}).exists(): await asyncio.sleep(0.05)\n"
        "    print('stopped')\n"
        "async def begin(): return asyncio.create_task(watch())\n"
        "thread = LoopThread()\n"
        "task = thread.call(begin())"
    )
    later = client.execute("1")
    idle = {"execution_state": "idle"}
    message(client, lambda found: found["content"] == idle and found["parent_header"]["msg_id"] == later)
    flag.touch()
    notice = message(client, lambda found: found["msg_type"] == "stream")
    assert notice["content"]["text"].strip() == "stopped"
    assert notice["parent_header"]["msg_id"] == first
