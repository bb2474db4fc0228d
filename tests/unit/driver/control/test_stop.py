"""Tests that a cluster which another process leads is stopped together with its driver. The workers are stubs."""

import asyncio
from types import SimpleNamespace

import pytest
from farandole.driver.control import mailbox
from farandole.driver.control.control_service import ControlService
from farandole.driver.control.mailbox import driver_statuses
from farandole.driver.control.stop import stop_cluster
from farandole.driver.core.core import ClusterCore
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import NoClusterError
from farandole.runs.origin import Origin
from farandole.runs.store import RunStore

from tests.workers import Hub, Stubs

HERE = "http://hub.localhost:8000/"
DEADLINE = 60


class Driver:
    """The driver of cluster ``c`` on a hub, and its mailbox."""

    def __init__(self, folder, hub=None):
        self.said = []
        self.hub = hub or Hub()
        self.hub.hub = HERE
        self.core = ClusterCore("c", self.hub, backend="none", on_notice=lambda _: None)
        self.core._pool = Stubs("c", self.hub, hear=lambda *_: None, on_notice=lambda _: None)
        runner = SimpleNamespace(going=[], store=RunStore(folder))
        self.control = ControlService(self.core, runner, local=False, origin=Origin(), progress=self.said.append)

    async def start(self, folder):
        await self.core.start(2, WorkerOptions(cluster="c"), lambda _: None, DEADLINE)
        await self.control.begin()
        async with asyncio.timeout(DEADLINE):
            while not driver_statuses(folder):
                await asyncio.sleep(0.02)


@pytest.fixture
async def driver(tmp_path):
    driver = Driver(tmp_path)
    await driver.start(tmp_path)
    yield driver
    await driver.control.end()


async def test_the_driver_stops_its_workers_and_starts_them_no_more(driver, tmp_path):
    await stop_cluster(driver.hub, "c", tmp_path)
    assert driver.hub.there == set()
    with pytest.raises(NoClusterError, match="'c' was stopped by another notebook or program. `%cluster start` starts"):
        await driver.core.replace_lost(lambda _: None)
    assert driver.said == ["cluster 'c' is being stopped by another notebook or program"]


async def test_a_driver_whose_workers_are_all_lost_is_stopped_as_well(driver, tmp_path):
    driver.hub.there = set()
    await stop_cluster(driver.hub, "c", tmp_path)
    assert driver.core.ended


async def test_the_workers_of_a_driver_that_does_not_answer_are_stopped(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(mailbox, "ANSWER_SECONDS", 0.2)
    await driver.control.end()
    folder = tmp_path / mailbox.MAILBOXES / "hung"
    folder.mkdir(parents=True)
    (folder / mailbox.STATUS_FILE).write_text(mailbox.strict_json(driver.control._describe()))
    await stop_cluster(driver.hub, "c", tmp_path)
    assert driver.hub.there == set()
    assert not driver.core.ended


async def test_a_cluster_of_this_name_on_another_hub_continues(driver, tmp_path):
    other = Hub()
    other.hub = "https://hub.example.org/"
    other.there = {"c-w0"}
    await stop_cluster(other, "c", tmp_path)
    assert other.there == set()
    assert driver.hub.there == {"c-w0", "c-w1"}
    assert not driver.core.ended


async def test_a_cluster_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(NoClusterError, match="no cluster 'c' is running"):
        await stop_cluster(Hub(), "c", tmp_path)
