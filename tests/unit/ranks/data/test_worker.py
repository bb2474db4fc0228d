"""Tests of the Dask worker in a rank's process, with a real scheduler in this process."""

import gc
import logging
import threading
import time
import urllib.request
import weakref
from concurrent.futures import CancelledError
from urllib.error import HTTPError

import dask
import psutil
import pytest
from distributed import Client, Scheduler
from farandole.driver.data.certificate import credentials, new_security
from farandole.driver.loop import LoopThread
from farandole.exceptions import DaskError
from farandole.ranks.data import worker
from farandole.ranks.data.worker import DataWorker, PausableThreadPoolExecutor

SECONDS = 20


class Value:
    """A result of a task."""


@pytest.fixture
def security():
    return new_security()


@pytest.fixture
def loop():
    loop = LoopThread("scheduler")
    yield loop
    loop.close()


async def started(security):
    return await Scheduler(protocol="tls", host="127.0.0.1", security=security, dashboard_address="127.0.0.1:0")


@pytest.fixture
def scheduler(loop, security):
    scheduler = loop.call(started(security))
    yield scheduler
    loop.call(scheduler.close())


@pytest.fixture
def data_worker(scheduler, security):
    data_worker = DataWorker(scheduler.address, credentials(security))
    data_worker.address()
    yield data_worker
    data_worker.close()


def until(condition):
    give_up = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def names_of_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("farandole-dask")]


def test_tasks_run_in_threads_of_this_process(scheduler, security, data_worker):
    with Client(scheduler.address, security=security) as client:
        assert client.submit(lambda: threading.current_thread().name).result(SECONDS).startswith("farandole-dask")
        assert list(client.scheduler_info()["workers"]) == [data_worker.address()]


def test_the_end_of_the_scheduler_ends_the_worker_and_frees_its_results(loop, scheduler, data_worker):
    value = Value()
    data_worker._worker.data["key"] = value
    kept = weakref.ref(value)
    del value
    loop.call(scheduler.close())
    until(lambda: names_of_threads() == [])
    gc.collect()
    assert kept() is None


def test_the_http_server_has_no_pages_and_listens_on_loopback_only(data_worker):
    found = psutil.Process().net_connections()
    listening = {one.laddr.port: one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}
    assert set(listening.values()) == {"127.0.0.1"}
    port = data_worker._worker.http_server.port
    for path in ("", "metrics", "health", "statics/css/base.css"):
        with pytest.raises(HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5)


def test_the_defaults_of_dask_change_but_not_what_the_user_has_set(data_worker):
    assert dask.config.get("distributed.comm.timeouts.tcp") == "300s"
    assert not dask.config.get("distributed.worker.profile.enabled")
    assert logging.getLogger("distributed").level == logging.ERROR
    own = {"distributed": {"comm": {"timeouts": {"tcp": "7s"}}}}
    dask.config.update_defaults(worker.DEFAULTS, config=own, defaults=list(dask.config.defaults))
    assert own["distributed"]["comm"]["timeouts"]["tcp"] == "7s"


@pytest.mark.parametrize("foreign", [True, False])
def test_a_scheduler_that_cannot_be_reached_is_named(monkeypatch, scheduler, security, foreign):
    """One that has another certificate, and one that does not exist."""
    monkeypatch.setattr(worker, "START_SECONDS", 1.0)
    address = scheduler.address if foreign else "tls://127.0.0.1:1"
    own = new_security() if foreign else security
    with pytest.raises(DaskError, match=f"cannot reach Dask's scheduler in the notebook at {address} .*open the ports"):
        DataWorker(address, credentials(own)).address()


def test_another_fault_of_the_start_is_named(monkeypatch, scheduler, security):
    monkeypatch.setattr(worker, "private_folder", lambda _: "/proc/none")
    with pytest.raises(DaskError, match="Dask cannot start on this rank: .*/proc"):
        DataWorker(scheduler.address, credentials(security)).address()


def test_no_task_begins_during_a_pause():
    executor = PausableThreadPoolExecutor(1)
    executor.pause()
    future = executor.submit(int, "7")
    with pytest.raises(TimeoutError):
        future.result(0.2)
    assert executor.paused
    executor.resume()
    assert future.result(SECONDS) == 7
    executor.shutdown()


def test_tasks_that_wait_for_the_end_of_a_pause_do_not_begin_when_the_threads_end():
    executor = PausableThreadPoolExecutor(1)
    executor.pause()
    begun = threading.Event()
    future = executor.submit(begun.set)
    executor.shutdown()
    with pytest.raises(CancelledError, match="Dask has ended on this rank"):
        future.result(SECONDS)
    assert not begun.is_set()


def test_free_memory_is_released_while_tasks_wait_for_memory(monkeypatch, scheduler, security):
    released = []
    monkeypatch.setattr(worker, "RELEASE_SECONDS", 0.02)
    monkeypatch.setattr(worker, "release_free_memory", lambda: released.append(time.monotonic()))
    data_worker = DataWorker(scheduler.address, credentials(security))
    data_worker.address()
    time.sleep(0.2)
    assert released == []
    data_worker._worker.memory_manager.memory_limit = 1
    until(lambda: len(released) >= 3)
    first, second, third = released[:3]
    assert third - second > second - first
    data_worker.close()


def test_an_end_can_be_repeated(data_worker):
    data_worker.close()
    data_worker.close()
    assert names_of_threads() == []
