"""Tests for cells on a cluster that currently has no ranks, and on a cluster whose workers start and stop."""

import asyncio
from types import SimpleNamespace

import pytest
from farandole.driver.cells.runner import CellRunner
from farandole.driver.core.core import ClusterCore
from farandole.driver.core.pool import WorkerHandle
from farandole.driver.elastic.run import ElasticCell, RunCallbacks
from farandole.driver.kernels.group import Cell
from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Reply
from farandole.driver.options import Elastic
from farandole.driver.world.backends import choose_backend
from farandole.driver.world.world import World
from farandole.exceptions import RankError
from farandole.runs.store import RunStore


@pytest.fixture
def core():
    core = ClusterCore("c", None, backend="torch", on_notice=lambda _: None)
    core.world = World(core.group, choose_backend("torch", [("torch",)]))
    return core


class Stopped:
    """An elastic cell that has lost all its ranks, and runs until it is stopped."""

    def __init__(self):
        self.begun, self.over = asyncio.Event(), asyncio.Event()

    async def run(self):
        self.begun.set()
        await self.over.wait()
        return []

    def stop(self):
        self.over.set()


async def test_a_run_stopped_without_ranks_counts_as_stopped(core, tmp_path):
    cell = Stopped()
    run = asyncio.create_task(core.lead(cell))
    await cell.begun.wait()
    await core.interrupt()
    assert await run == []
    assert core.group.interrupted
    training = CellRunner(core, None, RunStore(tmp_path), logs=None, progress=lambda _: None)
    with pytest.raises(RankError, match="was stopped on all ranks"):
        training._check_end(SimpleNamespace(ranks=list), [])


async def test_a_cell_stopped_before_it_reaches_its_ranks_is_stopped_when_it_does(core, monkeypatch):
    busy, stopped = [], []

    async def interrupt(*, together):
        stopped.append(list(busy))
        busy.clear()

    monkeypatch.setattr(type(core.group), "busy", property(lambda _: busy))
    monkeypatch.setattr(core.group, "interrupt", interrupt)
    await core._cell.acquire()
    stop = asyncio.create_task(core.interrupt())
    await asyncio.wait([stop], timeout=0.2)
    assert stopped == []
    busy.append("rank 0")
    core._cell.release()
    await asyncio.wait_for(stop, 5)
    assert stopped == [["rank 0"]]


async def test_a_run_that_ended_on_no_rank_is_not_finished(core, tmp_path):
    training = CellRunner(core, None, RunStore(tmp_path), logs=None, progress=lambda _: None)
    with pytest.raises(RankError, match="ended on no rank"):
        training._check_end(SimpleNamespace(ranks=list), [])


@pytest.mark.parametrize(("left", "formed"), [((False, False), True), ((False, True), False)])
async def test_a_world_that_a_cell_has_left_is_formed_again(core, left, formed):
    core.world._members = core.world._current()
    replies = [Reply(rank=rank, worker="c-w0", status="ok", ended=0.0, left=gone) for rank, gone in enumerate(left)]
    assert core._checked(replies) == replies
    assert core.world.formed is formed


async def test_a_cluster_is_busy_while_a_cell_has_no_rank_yet(core):
    assert not core.busy
    async with core._cell:
        assert core.busy
        check = asyncio.create_task(core.check(lambda _: None))
        done, _ = await asyncio.wait([check], timeout=0.1)
        # Two checks at the same time would start the same kernels.
        assert not done
        check.cancel()
    assert not core.busy


async def test_a_cell_that_begins_while_lost_ranks_are_replaced_waits(core, monkeypatch):
    replacing, may_end = asyncio.Event(), asyncio.Event()

    async def reconcile(_progress):
        replacing.set()
        await may_end.wait()

    monkeypatch.setattr(core, "reconcile", reconcile)
    replacement = asyncio.create_task(core.replace_lost(lambda _: None))
    await replacing.wait()
    assert not core.busy
    may_end.set()
    async with core.cell(lambda _: None):
        assert core.busy
    await replacement


async def test_a_cell_can_start_right_after_a_run_is_stopped(core):
    cell = Stopped()

    async def run():
        async with core._cell:
            await core.lead(cell)
            for _ in range(5):  # The event loop needs several iterations to end the cell.
                await asyncio.sleep(0)

    running = asyncio.create_task(run())
    await cell.begun.wait()
    assert core.busy
    await core.interrupt()
    assert not core.busy
    await running


class Cluster:
    """The workers of a cluster. They start immediately, and stop when the test sets `may_stop`."""

    def __init__(self, core, workers):
        self.group = core.group
        self.handles = [self.handle(f"c-w{number}") for number in range(workers)]
        self.may_stop = asyncio.Event()

    def handle(self, name):
        worker = SimpleNamespace(name=name)
        return WorkerHandle(worker=worker, info=None, kernels=[RankKernel(worker, name, slot=0)])

    async def grow(self, workers, _progress):
        self.handles += [self.handle(f"c-new{number}") for number in range(workers)]

    async def drop(self, names):
        await self.may_stop.wait()
        self.handles = [handle for handle in self.handles if handle.worker.name not in names]

    async def refill(self, _progress):
        return None


async def test_a_scale_retries_new_ranks(core):
    cluster = Cluster(core, 2)
    cell = ElasticCell(
        cluster,
        Cell(code="x", sink=lambda *_: None),
        Elastic(),
        RunCallbacks(notice=lambda _: None, assigned=lambda _: None),
    )
    members = cell._agent.membership
    for workers in (3, 3):
        members.refusals = [Reply(rank=2, worker="c-w1", status="error", ended=0.0)] * 3
        await cell.scale(workers, lambda _: None)
        assert members.refusals == []
    assert len(cluster.handles) == 3
    await cell._agent._replacer.close()


async def test_workers_that_are_leaving_do_not_count(core):
    cluster = Cluster(core, 3)
    callbacks = RunCallbacks(notice=lambda _: None, assigned=lambda _: None)
    cell = ElasticCell(cluster, Cell(code="x", sink=lambda *_: None), Elastic(), callbacks)
    for handle in cluster.handles:
        cell._agent.membership.world += handle.kernels
    first = cluster.handles[0].worker.name
    await cell.scale(1, lambda _: None)
    await cell.scale(2, lambda _: None)
    assert [handle.worker.name for handle in cluster.handles] == [first, "c-w1", "c-w2", "c-new0"]
    cluster.may_stop.set()
    await cell.release([handle.kernels[0] for handle in cluster.handles[1:3]])
    assert [handle.worker.name for handle in cluster.handles] == [first, "c-new0"]
    await cell._agent._replacer.close()
