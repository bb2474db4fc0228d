"""Tests for training cells whose runs are being created: a busy cluster, watchers that fail, and interrupts."""

import _thread
import asyncio
import threading
import time
from concurrent.futures import wait

import pytest
from farandole.driver.cells import runner
from farandole.driver.cells.runner import NOT_BEGUN, CellRunner, TrainRequest
from farandole.driver.core import core
from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import LoopThread
from farandole.driver.workers.worker import WorkerOptions
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.workers import Hub, Stubs


def ignore(*_):
    return None


class InterruptedStore(RunStore):
    """A store that calls `meanwhile` while it is creating a run."""

    meanwhile = staticmethod(ignore)

    def create(self, **options):
        run = super().create(**options)
        self.meanwhile()
        return run


class Cluster:
    """A cluster of two stub ranks with a runner for training cells. Its event loop runs in a separate thread."""

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

    def end_cells(self):
        """End the cells of all ranks. Cells that have not started yet will end immediately."""
        for rank in self.ranks:
            self.loop.loop.call_soon_threadsafe(rank.over.set)

    def interrupt(self):
        """Interrupt the main thread, which is waiting for a cell, and wait until the cell's task is being cancelled."""
        _thread.interrupt_main()
        give_up = time.monotonic() + 30
        while not any(task.cancelling() for task in asyncio.all_tasks(self.loop.loop)):
            assert time.monotonic() < give_up, "the interrupt did not cancel the cell"
            time.sleep(0.01)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    # An interrupt waits this long for a cell that is about to begin. In the tests with an interrupt, no cell begins.
    monkeypatch.setattr(core, "BEGIN_SECONDS", 0.1)
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.loop.close()


@pytest.mark.parametrize("detach", [False, True])
def test_a_scale_waits_for_the_cell_whose_run_is_being_created(cluster, detach):
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


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_is_watched_before_its_cell_starts(cluster, detach):
    """A watcher that starts later would miss the first reports, so TensorBoard's event files would lack them."""
    threads = []

    def watch(run):
        assert run.status is Status.RUNNING
        assert not cluster.core.group.busy
        threads.append(threading.current_thread())
        cluster.end_cells()
        return ignore

    cluster.training.train(TrainRequest(code="x"), watch=watch, detach=detach).wait(60)
    assert threads == [threading.main_thread()]


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_that_cannot_be_watched_ends(cluster, detach):
    def watch(run):
        raise OSError("no dashboard")

    with pytest.raises(OSError, match="no dashboard"):
        cluster.training.train(TrainRequest(code="x"), watch=watch, detach=detach)
    [run] = cluster.store.list()
    assert run.status.ended
    assert not cluster.core.busy


@pytest.mark.parametrize("detach", [False, True])
def test_an_interrupt_while_a_run_is_being_created_ends_the_run(cluster, detach):
    """The thread that creates the run cannot be stopped, so the interrupt has to end the run after its creation."""
    cluster.store.meanwhile = cluster.interrupt
    with pytest.raises(KeyboardInterrupt):
        cluster.training.train(TrainRequest(code="x"), detach=detach)
    [run] = cluster.store.list()
    assert (run.status, run.error) == (Status.INTERRUPTED, NOT_BEGUN)
    assert cluster.training.going == []
    assert not cluster.core.busy

    cluster.store.meanwhile = ignore
    cluster.end_cells()
    assert cluster.training.train(TrainRequest(code="x")).status is Status.FINISHED


@pytest.mark.parametrize(("detach", "error"), [(False, "KeyboardInterrupt"), (True, NOT_BEGUN)])
def test_an_interrupt_while_the_watch_begins_ends_the_run(cluster, detach, error):
    def watch(run):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.training.train(TrainRequest(code="x"), watch=watch, detach=detach)
    [run] = cluster.store.list()
    assert (run.status, run.error) == (Status.INTERRUPTED, error)
    assert not cluster.core.busy


async def answer(value):
    return value


def train_until_an_interrupt(cluster, monkeypatch, *, shuts_down):
    """Interrupt the cell of a run, after which the kernel shuts down or not, and return the run of the store."""
    monkeypatch.setattr(runner, "shutdown_follows", lambda: answer(shuts_down))
    threading.Thread(target=interrupt_busy, args=(cluster,)).start()
    with pytest.raises(KeyboardInterrupt):
        cluster.training.train(TrainRequest(code="x"))
    [run] = cluster.store.list()
    return run


def interrupt_busy(cluster):
    give_up = time.monotonic() + 30
    while not all(rank.computes.is_set() for rank in cluster.ranks) and time.monotonic() < give_up:
        time.sleep(0.01)
    _thread.interrupt_main()


def test_the_interrupt_of_a_user_ends_the_run(cluster, monkeypatch):
    assert train_until_an_interrupt(cluster, monkeypatch, shuts_down=False).status is Status.INTERRUPTED
    assert not cluster.core.busy


def test_the_interrupt_before_a_shutdown_leaves_the_run_on_its_ranks(cluster, monkeypatch):
    run = train_until_an_interrupt(cluster, monkeypatch, shuts_down=True)
    # The store would report the run as lost if this process, the driver, had ended.
    assert run.status is Status.RUNNING
    assert [rank.over.is_set() for rank in cluster.ranks] == [False, False]
    assert run.id in cluster.core.router.runs
    cluster.loop.call(cluster.core.interrupt())


def test_the_interrupt_before_a_shutdown_ends_the_run_of_a_local_cluster(cluster, monkeypatch):
    cluster.training._local = True
    assert train_until_an_interrupt(cluster, monkeypatch, shuts_down=True).status is Status.INTERRUPTED
