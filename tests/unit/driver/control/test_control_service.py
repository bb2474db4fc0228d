"""Tests that other processes can change a cluster while its driver is busy. The workers are stubs."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from farandole.driver.control.control_service import ControlService
from farandole.driver.control.mailbox import ask, driver_statuses
from farandole.driver.core.core import ClusterCore
from farandole.driver.kernels.group import Cell
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import DeadlineError, HubError, NoClusterError
from farandole.runs.origin import Origin
from farandole.runs.store import RunStore

from tests.workers import Hub, Stubs

DEADLINE = 60


class Cluster:
    """A cluster with a control service and stub workers, which start when the test allows it."""

    def __init__(self, folder):
        self.hub = Hub()
        self.core = ClusterCore("c", self.hub, backend="none", on_notice=lambda _: None)
        self.core._pool = Stubs("c", self.hub, hear=lambda *_: None, on_notice=lambda _: None)
        self.folder = folder
        training = SimpleNamespace(going=[], store=RunStore(folder))
        self.leading = ControlService(self.core, training, local=False, origin=Origin(), progress=lambda _: None)

    async def start(self, workers=1):
        await self.core.start(workers, WorkerOptions(cluster="c"), lambda _: None, 60)

    @asynccontextmanager
    async def cell(self):
        """Run a cell on the first worker, yield the cell's task, and wait until the cell ends."""
        task = asyncio.create_task(
            self.core.run(Cell(code="x", sink=lambda *_: None), None, lambda _: None), name="the cell"
        )
        await self.core.handles[0].kernels[0].computes.wait()
        yield task
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait([task])

    async def status(self, wanted):
        async with asyncio.timeout(DEADLINE):
            while not (found := driver_statuses(self.folder)) or not wanted(found[0]):
                await asyncio.sleep(0.02)
        return found[0]

    async def asked(self, do, **what):
        here = await self.status(lambda _: True)
        return asyncio.create_task(ask(here, do, seconds=DEADLINE, **what))


@pytest.fixture
async def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    await cluster.leading.begin()
    async with asyncio.timeout(DEADLINE):
        yield cluster
        await cluster.leading.end()


async def test_a_stop_ends_requests_that_wait_for_the_cell(cluster):
    await cluster.start()
    async with cluster.cell() as cell:
        scale = await cluster.asked("scale", workers=3)
        await cluster.status(lambda status: status.wanted == 3)
        await (await cluster.asked("stop"))
    with pytest.raises(NoClusterError, match="was stopped from the panel"):
        async with cluster.core.cell(lambda _: None):
            pass
    assert [reply.status for reply in await cell] == ["error"]
    with pytest.raises(Exception, match="was stopped from the panel"):
        await scale
    assert cluster.hub.asked == [["c-w0"]]
    assert cluster.hub.there == set()


async def test_a_stop_cancels_a_start_of_more_workers(cluster):
    await cluster.start()
    cluster.hub.may_start.clear()
    cluster.hub.starting.clear()
    scale = await cluster.asked("scale", workers=3)
    await cluster.hub.starting.wait()
    await (await cluster.asked("stop"))
    with pytest.raises(Exception, match="was stopped from the panel"):
        await scale
    assert cluster.hub.there == set()


async def test_a_cell_during_the_stop_of_the_cluster_starts_nothing(cluster):
    await cluster.start()
    cluster.core.handles[0].kernels[0].mark_dead("killed")
    cluster.hub.may_stop.clear()
    stop = await cluster.asked("stop")
    await cluster.hub.stopping.wait()
    with pytest.raises(NoClusterError, match="was stopped from the panel"):
        await cluster.core.run(Cell(code="x", sink=lambda *_: None), None, lambda _: None)
    cluster.hub.may_stop.set()
    await stop
    assert cluster.hub.asked == [["c-w0"]]


async def test_releasing_a_cluster_waits_until_it_is_stopped(cluster):
    await cluster.start(2)
    cluster.hub.may_stop.clear()
    stop = await cluster.asked("stop")
    await cluster.hub.stopping.wait()
    end = asyncio.create_task(cluster.leading.end())
    asyncio.get_running_loop().call_soon(cluster.hub.may_stop.set)
    await end
    assert cluster.hub.there == set()
    stop.cancel()


async def test_a_cluster_that_cannot_be_stopped_still_exists(cluster):
    await cluster.start()
    cluster.hub.trouble = HubError("the hub is full")
    with pytest.raises(Exception, match="the hub is full"):
        await (await cluster.asked("stop"))
    assert cluster.core.ended == ""
    assert (await cluster.status(lambda status: status.error == "the hub is full")).workers == ("c-w0",)
    cluster.hub.trouble = None
    await (await cluster.asked("stop"))
    assert cluster.hub.there == set()


async def test_the_last_requested_size_wins(cluster):
    await cluster.start()
    async with cluster.cell():
        scales = []
        for workers in (8, 5, 2):
            scales.append(await cluster.asked("scale", workers=workers))
            await cluster.status(lambda status, workers=workers: status.wanted == workers)
        cluster.core.handles[0].kernels[0].over.set()
    await asyncio.gather(*scales)
    assert cluster.hub.asked == [["c-w0"], ["c-w1"]]
    assert (await cluster.status(lambda status: status.wanted is None)).workers == ("c-w0", "c-w1")


async def test_a_cluster_is_led_from_its_first_worker_on(cluster):
    cluster.hub.may_start.clear()
    start = asyncio.create_task(cluster.start(2))
    status = await cluster.status(lambda status: status.workers)
    assert (status.workers, status.ranks, status.backend, status.busy) == (("c-w0", "c-w1"), (), "none", True)
    with pytest.raises(DeadlineError, match="is still handling the request"):
        await ask(status, "scale", workers=3, seconds=0)
    cluster.hub.may_start.set()
    await start
    await cluster.status(lambda status: len(status.ranks) == 3 and status.wanted is None)
    assert cluster.hub.asked == [["c-w0", "c-w1"], ["c-w2"]]


async def test_a_starting_cluster_can_be_stopped(cluster):
    cluster.hub.may_start.clear()
    start = asyncio.create_task(cluster.start(2))
    await cluster.status(lambda status: status.workers)
    scale = await cluster.asked("scale", workers=3)
    await cluster.status(lambda status: status.wanted)
    await (await cluster.asked("stop"))
    for task in (start, scale):
        with pytest.raises(Exception, match="was stopped from the panel"):
            await task
    assert cluster.hub.there == set()


async def test_a_cluster_that_fails_to_start_is_not_scaled(cluster):
    cluster.hub.may_start.clear()
    start = asyncio.create_task(cluster.start(2))
    await cluster.status(lambda status: status.workers)
    scale = await cluster.asked("scale", workers=3)
    await cluster.status(lambda status: status.wanted)
    start.cancel()
    with pytest.raises(Exception, match="has not started"):
        await scale
    assert (cluster.hub.there, len(cluster.hub.asked)) == (set(), 1)
