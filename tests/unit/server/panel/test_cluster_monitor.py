"""Tests for runs that may be in progress, which must be neither deleted nor reported as lost, and for notices."""

from pathlib import Path

import aiohttp
import pytest
from farandole.driver.control.mailbox import DriverStatus
from farandole.driver.data.status import DaskStatus, DaskWorker
from farandole.driver.workers.notices import Notice
from farandole.driver.workers.worker import WorkerInfo, WorkerLook
from farandole.exceptions import HubError
from farandole.server.panel import cluster_monitor
from farandole.server.panel.cluster_monitor import ClusterMonitor
from farandole.server.panel.clusters import Snapshot, WorkerAnswer, cluster


@pytest.fixture
def monitor(tmp_path):
    """The monitor of a user with two workers, which have not been asked yet."""
    monitor = ClusterMonitor(tmp_path, object(), lambda: None, {})
    monitor.snapshot.servers = {name: {"ready": True} for name in ("main-w0", "main-w1")}
    return monitor


def answer(monitor, *workers):
    monitor.user = "ada"
    monitor.snapshot.answers = {name: WorkerAnswer(status=None, time=1.0) for name in workers}


def test_the_active_runs_are_known_when_all_workers_have_answered(monitor):
    answer(monitor, "main-w0", "main-w1")
    assert monitor.unsure("main") is None


def test_a_cluster_without_workers_has_no_active_runs(monitor):
    answer(monitor)
    assert monitor.unsure("other") is None


def test_a_silent_worker_may_execute_a_run(monitor):
    answer(monitor, "main-w0")
    assert monitor.unsure("main") == "worker main-w1 does not answer"


def test_without_the_hubs_answer_no_run_is_known_to_have_ended(monitor):
    assert monitor.unsure("other") == "the hub has not answered yet"
    answer(monitor, "main-w0", "main-w1")
    monitor.error = "the hub does not answer"
    assert monitor.unsure("main") == "its workers cannot be asked (the hub does not answer)"


def test_without_a_hub_there_are_no_workers_to_ask(tmp_path):
    assert ClusterMonitor(tmp_path, None, lambda: None, {}).unsure("main") is None


def driver_status(*runs, local=False, dask=None):
    """The status of a driver of two workers that executes these runs."""
    return DriverStatus(
        folder=Path("mailbox"),
        cluster="main",
        local=local,
        hub=None,
        backend="none",
        notebook="",
        kernel="",
        driver={"host": "here", "pid": 7, "started": 1.0},
        since=1.0,
        busy=bool(runs),
        workers=("main-w0", "main-w1"),
        ranks=(),
        runs=runs,
        wanted=None,
        error=None,
        dask=dask,
    )


def answered(time, *runs, idle_seconds=None):
    """The answer of a worker at this time."""
    info = WorkerInfo(
        worker="main-w0", ranks=1, profile="lean", host="host", address="", node="", backends=("none",),
        idle_minutes=30.0, idle_seconds=idle_seconds,
    )  # fmt: skip
    return WorkerAnswer(status=WorkerLook(info=info, usage={}, runs=runs), time=time)


@pytest.fixture
def snapshot():
    """A cluster whose workers last answered before its driver started the run "survivor"."""
    servers = {name: {"ready": True} for name in ("main-w0", "main-w1")}
    snapshot = Snapshot(servers=servers, answers={name: answered(5.0) for name in servers})
    snapshot.record_drivers([driver_status("survivor")], 9.0)
    return snapshot


@pytest.mark.parametrize(
    ("tasks", "busy", "idle_until"),
    [((0, 0), False, 1790.0), ((1, 0), True, None), ((0, 1), True, None), (None, False, 1790.0)],
    ids=["done", "running", "waiting", "no Dask"],
)
def test_a_worker_with_tasks_of_dask_is_not_idle(snapshot, tasks, busy, idle_until):
    workers = {}
    if tasks is not None:
        running, waiting = tasks
        workers["main-w0"] = DaskWorker(
            running=running, waiting=waiting, done=5, memory=0, memory_limit=1, spilled=0, paused=None
        )
    dask = DaskStatus(tasks=6, done=5, failed=0, workers=workers)
    snapshot.answers = {name: answered(5.0, idle_seconds=15.0) for name in snapshot.servers}
    snapshot.record_drivers([driver_status(dask=dask)], 9.0)
    first, second = cluster(snapshot, "main", str)["workers"]
    assert (first["busy"], first["idle_until"]) == (busy, idle_until)
    assert (second["busy"], second["idle_until"]) == (False, 1790.0)


def test_a_run_without_its_driver_is_active_until_the_workers_have_answered(snapshot):
    for now in (10.0, 11.0):
        snapshot.record_drivers([], now)
        assert snapshot.active_runs() == snapshot.active_runs("main") == {"survivor"}
    assert snapshot.active_runs("other") == set()
    snapshot.answers = {"main-w0": answered(12.0), "main-w1": answered(5.0)}
    assert snapshot.active_runs() == {"survivor"}
    snapshot.answers["main-w1"] = answered(12.0)
    assert snapshot.active_runs() == set()
    snapshot.record_drivers([], 13.0)
    assert snapshot.ended_drivers == []


def test_a_run_that_the_workers_continue_stays_active(snapshot):
    snapshot.record_drivers([], 10.0)
    snapshot.answers = {name: answered(12.0, "survivor") for name in snapshot.servers}
    assert snapshot.active_runs("main") == {"survivor"}


def test_a_run_whose_workers_are_gone_has_ended(snapshot):
    snapshot.record_drivers([], 10.0)
    snapshot.servers = {}
    snapshot.answers = {}
    assert snapshot.active_runs() == set()


def test_a_run_ends_with_its_driver_in_a_local_cluster_and_before_it_in_an_idle_one(snapshot):
    snapshot.record_drivers([driver_status()], 10.0)
    assert snapshot.active_runs() == set()
    snapshot.record_drivers([driver_status("local run", local=True)], 11.0)
    snapshot.record_drivers([], 12.0)
    assert snapshot.active_runs() == set()


class Hub:
    """A hub with a notice for ada, and its client."""

    def __init__(self):
        self.client = self
        self.error = None
        self.asked = 0

    async def user(self):
        return "ada"

    async def servers(self):
        return {"main-w0": {"ready": False}}

    async def gpus(self):
        return {}

    async def notices(self):
        self.asked += 1
        if self.error:
            raise self.error
        return [Notice(by="olga", at=7.5, text="Bye.", servers=("", "main-w0"))]

    async def close(self):
        pass


NOTICE = {"by": "olga", "time": 7.5, "text": "Bye.", "servers": ["", "main-w0"]}


@pytest.fixture
async def hub(tmp_path):
    hub = Hub()
    hub.monitor = ClusterMonitor(tmp_path, hub, lambda: None, {})
    yield hub
    await hub.monitor.close()


async def test_the_first_refresh_asks_for_notices_and_the_next_ones_do_not(hub):
    assert hub.monitor.hub == {"user": None, "error": None, "notices": []}
    for _ in range(3):
        await hub.monitor.refresh()
        assert hub.monitor.hub == {"user": "ada", "error": None, "notices": [NOTICE]}
    assert hub.asked == 1


async def test_notices_are_asked_for_again_later(hub, monkeypatch):
    monkeypatch.setattr(cluster_monitor, "SELDOM_SECONDS", 0.0)
    for _ in range(3):
        await hub.monitor.refresh()
    assert hub.asked == 3


@pytest.mark.parametrize(
    "error", [HubError("the hub could not process a request", status=500), aiohttp.ClientPayloadError("cut off")]
)
async def test_a_hub_that_does_not_send_notices_still_has_workers_and_is_asked_again(hub, error):
    hub.error = error
    for _ in range(2):
        await hub.monitor.refresh()
        assert hub.monitor.hub == {"user": "ada", "error": None, "notices": []}
        assert "main-w0" in hub.monitor.snapshot.servers
    hub.error = None
    await hub.monitor.refresh()
    assert hub.monitor.hub["notices"] == [NOTICE]
    assert hub.asked == 3


async def test_a_hub_that_does_not_answer_in_time_is_named(hub):
    hub.error = TimeoutError()
    await hub.monitor.refresh()
    assert hub.monitor.hub == {"user": "ada", "error": "the hub does not answer", "notices": []}


async def test_notices_do_not_wait_for_gpus(hub):
    async def gpus():
        raise HubError("the hub could not process a request", status=500)

    hub.gpus = gpus
    await hub.monitor.refresh()
    assert hub.monitor.hub["notices"] == [NOTICE]


def test_a_server_without_a_hub_has_no_notices(tmp_path):
    assert ClusterMonitor(tmp_path, None, lambda: None, {}).hub is None
