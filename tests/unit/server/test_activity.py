"""Tests for detecting activity on a server from the states of its kernels, and for the first report after a pause."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest
from farandole.server.activity import SAVED, ActivityKernelManager, FirstReport, last_use, report_activity
from jupyter_server._tz import utcnow
from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.kernelmanager import MappingKernelManager

CELL = {"msg_type": "execute_request", "msg_id": "cell"}
OTHER = f"{MappingKernelManager.__module__}.{MappingKernelManager.__name__}"
LONG_AGO = utcnow() - timedelta(hours=2)


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def manager(process):
    manager = ActivityKernelManager()
    manager._kernels["rank"] = SimpleNamespace(provisioner=SimpleNamespace(process=process))
    manager.last_kernel_activity = LONG_AGO
    return manager


@pytest.fixture
def settings():
    return {"started": LONG_AGO, "last_activity_times": {}, "api_last_activity": utcnow()}


def age(manager, settings):
    return utcnow() - last_use(manager, settings)


def test_a_silent_execution_counts_as_activity_until_it_ends(manager, settings):
    assert age(manager, settings) >= timedelta(hours=2)
    manager.note_status("rank", CELL, "busy")
    assert manager.busy
    assert age(manager, settings) < timedelta(minutes=1)
    manager.last_kernel_activity = LONG_AGO
    manager.note_status("rank", CELL, "idle")
    assert not manager.busy
    assert manager.last_kernel_activity > LONG_AGO


@pytest.mark.parametrize(
    "other",
    [
        {"msg_type": "comm_msg", "msg_id": "click", "subshell_id": "s"},
        {"msg_type": "kernel_info_request", "msg_id": "info"},
        {"msg_type": "execute_request", "msg_id": "rescue", "subshell_id": "s"},
        {"msg_type": "execute_request", "msg_id": "an older one"},
        {},
    ],
)
def test_the_end_of_another_request_is_not_the_end_of_the_cell(manager, other):
    manager.note_status("rank", CELL, "busy")
    if other.get("subshell_id"):
        manager.note_status("rank", other, "busy")
    manager.note_status("rank", other, "idle")
    assert manager.busy


def test_a_lost_end_is_corrected_by_the_next_one(manager):
    manager.note_status("rank", CELL, "busy")
    for state in ("busy", "idle"):
        manager.note_status("rank", {**CELL, "msg_id": "next"}, state)
    assert not manager.busy


def test_executions_of_a_dead_process_do_not_count(manager, process):
    manager.note_status("rank", CELL, "busy")
    process.kill()
    process.wait()
    assert not manager.busy


def test_a_slow_observer_hides_no_cell_and_after_its_end_the_server_decides(manager):
    manager.note_status("rank", CELL, "busy", observer="socket")
    for state in ("busy", "idle"):
        manager.note_status("rank", {**CELL, "msg_id": "before"}, state)
    assert manager.busy
    manager.transfer_to_server("socket")
    assert manager.busy
    manager.note_status("rank", CELL, "idle")
    assert not manager.busy


def test_saving_a_file_is_activity_and_a_request_is_not(manager, settings):
    settings[SAVED] = utcnow()
    assert age(manager, settings) < timedelta(minutes=1)
    del settings[SAVED]
    assert age(manager, settings) >= timedelta(hours=2)


async def test_a_real_kernel_is_watched_without_any_connection(tmp_path):
    manager = ActivityKernelManager(connection_dir=str(tmp_path), root_dir=str(tmp_path), transport="ipc")
    kernel_id = await manager.start_kernel(kernel_name="python3")
    client = manager.get_kernel(kernel_id).client()
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=60)
        flag = tmp_path / "flag"
        client.execute(f"import os, time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.05)")
        await until(lambda: manager.busy)
        # A click in the dashboard sets this state to idle although the cell is still running.
        manager.get_kernel(kernel_id).execution_state = "idle"
        assert manager.busy
        flag.touch()
        await until(lambda: not manager.busy)
        client.execute("import time; time.sleep(1000)")
        await until(lambda: manager.busy)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(kernel_id, now=True)
    assert not manager.busy


async def until(happened):
    async with asyncio.timeout(60):
        while not happened():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("pause", "reports"), [(1, 0), (100, 1)])
async def test_after_a_pause_activity_is_reported_to_the_hub_immediately(manager, pause, reports):
    reported = asyncio.Event()
    count = []

    async def notify():
        count.append(manager.busy)
        reported.set()

    manager.before_work = FirstReport(
        since=lambda: timedelta(seconds=pause), notify=notify, interval=timedelta(seconds=60)
    )
    for state in ("busy", "busy", "idle"):
        manager.note_status("rank", CELL, state)
    manager.note_status("rank", CELL, "busy")
    if reports:
        await asyncio.wait_for(reported.wait(), 10)
    await asyncio.sleep(0)
    assert count == [True] * reports


async def test_an_unreachable_hub_breaks_nothing():
    async def notify():
        raise TimeoutError

    report = FirstReport(since=lambda: timedelta(days=1), notify=notify, interval=timedelta(seconds=60))
    report()
    await report.task


def test_a_server_without_a_hub_is_unchanged(manager, monkeypatch):
    monkeypatch.delenv("JUPYTERHUB_ACTIVITY_URL", raising=False)
    web_app = SimpleNamespace(settings={}, last_activity="its own")
    report_activity(SimpleNamespace(kernel_manager=manager, web_app=web_app))
    assert web_app.last_activity == "its own"


@pytest.mark.parametrize(
    ("given", "used"),
    [([], ActivityKernelManager), (["--ServerApp.kernel_manager_class=" + OTHER], MappingKernelManager)],
)
def test_a_notebook_server_gets_the_manager_unless_configured_otherwise(tmp_path, monkeypatch, given, used):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "1")
    extensions = {"farandole.server.notebook": True}
    server = ServerApp(port=0, root_dir=str(tmp_path), jpserver_extensions=extensions)
    server.initialize(["--allow-root", "--no-browser", *given], new_httpserver=False)
    assert type(server.kernel_manager) is used
