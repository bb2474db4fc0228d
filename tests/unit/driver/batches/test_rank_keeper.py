"""Tests of how ranks are replaced while Dask computes on them."""

import asyncio

import pytest
from farandole.driver.batches import rank_keeper
from farandole.driver.batches.rank_keeper import RankKeeper
from farandole.driver.elastic.run import RunCallbacks
from farandole.exceptions import RankDiedError, WorkerStartError


class Kernel:
    def __init__(self, rank):
        self.rank, self.alive = rank, True
        self.worker = self
        self.name = f"w{rank}"


class Cluster:
    """Stands for a core and its engine. `reconcile` makes all ranks alive."""

    def __init__(self, size=2):
        self.kernels = [Kernel(rank) for rank in range(size)]
        self.group = self
        self.lacking = set()
        self.failures = []
        self.reconciled = self.joined = 0
        self.sizes = []

    def clear(self):
        return None

    async def workers(self):
        return {one.name: one.rank for one in self.kernels if one.alive and one.rank not in self.lacking}

    async def reconcile(self, progress):
        self.reconciled += 1
        if self.failures:
            raise self.failures.pop(0)
        for kernel in self.kernels:
            kernel.alive = True

    async def join(self):
        self.joined += 1
        self.lacking = set()

    async def resize(self, workers, progress):
        self.sizes.append(workers)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for name, seconds in {"LOOK": 0.01, "REJOIN": 0.1, "RETRY": 0.02, "LOST": 0.2, "MEND": 1.0}.items():
        monkeypatch.setattr(rank_keeper, f"{name}_SECONDS", seconds)


class Job:
    def __init__(self, cluster):
        self.said, self.assigned, self.workers = [], [], {}
        callbacks = RunCallbacks(notice=self.notice, assigned=self.assigned.append)
        self.keeper = RankKeeper(cluster, cluster, callbacks, lambda workers: setattr(self, "workers", workers))
        self.running = asyncio.create_task(self.keeper.run())

    def notice(self, text, *, warning=False):
        self.said.append(text)

    async def until(self, condition):
        async with asyncio.timeout(5):
            while not condition():
                if self.running.done():
                    self.running.result()
                await asyncio.sleep(0.005)

    async def end(self):
        self.keeper.end()
        return await self.running


async def test_lost_ranks_are_replaced():
    cluster = Cluster()
    job = Job(cluster)
    await job.until(lambda: job.workers == {"w0": 0, "w1": 1})
    assert cluster.reconciled == 0
    for kernel in cluster.kernels:
        kernel.alive = False
    await job.until(lambda: cluster.reconciled == 1 and len(job.workers) == 2)
    assert await job.end() == []
    assert job.assigned == [["w0", "w1"]]
    assert job.said == []


async def test_a_rank_without_a_dask_worker_gets_one_after_a_while():
    cluster = Cluster()
    cluster.lacking = {1}
    job = Job(cluster)
    await job.until(lambda: len(job.workers) == 2)
    assert cluster.joined == 1
    await job.end()


async def test_a_rank_that_is_lost_with_the_last_part_is_replaced():
    cluster = Cluster()
    job = Job(cluster)
    await job.until(lambda: len(job.workers) == 2)
    cluster.lacking = {1}
    assert await job.end() == []
    assert cluster.joined == 1
    assert len(job.workers) == 2


async def test_a_failed_attempt_is_repeated_and_said_once():
    cluster = Cluster()
    cluster.failures = [WorkerStartError("no room"), WorkerStartError("no room"), RankDiedError("another died")]
    cluster.kernels[0].alive = False
    job = Job(cluster)
    await job.until(lambda: len(job.workers) == 2)
    assert cluster.reconciled == 4
    assert job.said[0] == "a lost rank could not be replaced yet, trying again: no room"
    assert len(job.said) <= 2
    await job.end()


async def test_no_rank_for_a_long_time_ends_the_job():
    cluster = Cluster(1)
    cluster.failures = [WorkerStartError("no room")] * 1000
    cluster.kernels[0].alive = False
    job = Job(cluster)
    with pytest.raises(RankDiedError, match="there has been no rank for 0 seconds: no room"):
        await job.running


async def test_a_bug_ends_the_job():
    cluster = Cluster()
    cluster.failures = [ZeroDivisionError()]
    cluster.kernels[0].alive = False
    with pytest.raises(ZeroDivisionError):
        await Job(cluster).running


async def test_the_user_may_stop_the_job_while_a_rank_is_being_replaced():
    cluster = Cluster()
    cluster.failures = [WorkerStartError("no room")] * 1000
    cluster.kernels[0].alive = False
    job = Job(cluster)
    await job.until(lambda: job.said)
    job.keeper.stop()
    async with asyncio.timeout(1):
        assert await job.running == []
    assert job.keeper.stopped


async def test_the_size_can_change():
    cluster = Cluster()
    job = Job(cluster)
    await job.keeper.scale(3, print)
    assert cluster.sizes == [3]
    assert job.assigned == [["w0", "w1"]]
    job.keeper.hear(cluster.kernels[0], [])
    await job.end()
