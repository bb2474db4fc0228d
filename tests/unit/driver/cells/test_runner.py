"""A training cell holds its cluster from the request to the last reply."""

import asyncio
from concurrent.futures import wait

import pytest
from farandole.driver.cells.runner import CellRunner, TrainRequest
from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import WorkerOptions
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.workers import Hub, Stubs


def ignore(*_):
    return None


class InterruptedStore(RunStore):
    """A store that calls `meanwhile` while a run is being created."""

    meanwhile = staticmethod(ignore)

    def create(self, **options):
        run = super().create(**options)
        self.meanwhile()
        return run


class Cluster:
    """A cluster of two stub ranks on its own loop, and what executes its cells."""

    def __init__(self, folder):
        self.loop = LoopThread()
        self.core = self.loop.call(self.make_core())
        self.store = InterruptedStore(folder)
        self.training = CellRunner(self.core, self.loop, self.store, logs=None, progress=ignore)
        self.loop.call(self.core.start(2, WorkerOptions(cluster="c"), ignore, 60))

    async def make_core(self):
        hub = Hub()
        core = ClusterCore("c", hub, backend="none", on_notice=ignore)
        core._pool = Stubs("c", hub, hear=ignore, on_notice=ignore)
        return core

    @property
    def ranks(self):
        return self.core.group.kernels


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.loop.close()


@pytest.mark.parametrize("detach", [False, True])
def test_a_scale_waits_for_the_cell_whose_run_is_begun(cluster, detach):
    ranks, scales = list(cluster.ranks), []

    def scale():
        scales.append(asyncio.run_coroutine_threadsafe(cluster.core.scale(1, ignore), cluster.loop.loop))
        assert not wait(scales, 0.5).done, "the cluster changed under a run that has begun"
        for rank in ranks:
            cluster.loop.loop.call_soon_threadsafe(rank.over.set)

    cluster.store.meanwhile = scale
    run = cluster.training.train(TrainRequest(code="x"), detach=detach)
    run.wait(60)
    assert run.status is Status.FINISHED
    assert [view.state for view in run.ranks()] == ["done", "done"]
    assert cluster.store.find(run.id).size == 2
    scales[0].result(60)
    assert len(cluster.ranks) == 1
