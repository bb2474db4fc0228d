"""Tests of what the driver says about the tasks of Dask. Most workers are objects of Dask, without processes."""

import asyncio
import threading
from collections import Counter

import pytest
from distributed import Client, Scheduler, Worker
from distributed.core import Status
from distributed.scheduler import WorkerState
from farandole.driver.data.monitor import TaskMonitor
from farandole.driver.data.status import DaskStatus, DaskWorker


def address_of(name):
    """Return the address of the Dask worker with this name, such as "w0/1"."""
    return "tls://" + name.replace("/", ":")


class Prefix:
    """The tasks of one name."""

    def __init__(self, **states):
        self.states = Counter({name.replace("_", "-"): count for name, count in states.items()})


class Engine:
    """A monitor, and the Dask workers and tasks at which it looks."""

    def __init__(self):
        self.monitor, self.ranks, self.prefixes = TaskMonitor(), [], []

    def add(self, name, *, results=0, status=Status.running, processing=0, running=0, paused=False):
        rank = WorkerState(
            address=address_of(name), status=status, pid=1, name=name, memory_limit=1000, local_directory="",
            nanny=None, server_id=name,
        )  # fmt: skip
        rank.metrics = {
            "memory": 900, "spilled_bytes": {"memory": 100, "disk": 70}, "farandole_paused": paused
        }  # fmt: skip
        rank.nbytes = results + 100
        rank.processing = set(range(processing))
        # According to the last heartbeat, a task runs that has ended.
        rank.executing = dict.fromkeys((*range(running), "ended"), 1.0)
        self.ranks.append(rank)
        return rank

    def ends(self, count, *, on="w0/1", state="memory"):
        for number in range(count):
            self.monitor.transition(f"task-{number}", "processing", state, stimulus_id="s", worker=address_of(on))

    def progress(self, **unfinished):
        self.monitor.look(self.ranks, [*self.prefixes, Prefix(**unfinished)])
        status = self.monitor.status
        return status.done, status.failed, status.tasks

    @property
    def workers(self):
        self.progress()
        return self.monitor.status.workers


@pytest.fixture
def engine():
    return Engine()


def test_all_unfinished_tasks_count(engine):
    engine.prefixes.append(Prefix(waiting=2, no_worker=3, released=50, memory=60, erred=70))
    assert engine.progress(queued=4, processing=5) == (0, 0, 14)
    engine.ends(6)
    engine.ends(1, state="erred")
    assert engine.progress(processing=1) == (6, 1, 13)


def test_results_that_are_sent_to_the_scheduler_are_no_tasks(engine):
    engine.monitor.transition("data", "released", "memory", stimulus_id="s", worker=address_of("w0/1"))
    assert engine.progress() == (0, 0, 0)


def test_the_progress_stays_until_new_tasks_come(engine):
    engine.progress(processing=2)
    engine.ends(2)
    assert engine.progress() == (2, 0, 2)
    assert engine.progress() == (2, 0, 2)
    assert engine.progress(waiting=3) == (0, 0, 3)
    engine.ends(3)
    assert engine.progress() == (3, 0, 3)


def test_tasks_that_came_and_ended_between_two_looks_are_new(engine):
    engine.progress(processing=2)
    engine.ends(2)
    engine.progress()
    engine.ends(5)
    assert engine.progress() == (5, 0, 5)


def test_the_ranks_of_a_worker_are_summed(engine):
    engine.add("w0/1", results=200, processing=3, running=1)
    engine.add("w0/2", results=100, processing=1, running=1)
    engine.add("w1/1")
    engine.ends(4, on="w0/1")
    engine.ends(2, on="w0/2")
    assert engine.workers == {
        "w0": DaskWorker(running=2, waiting=2, done=6, memory=300, memory_limit=2000, spilled=140, paused=None),
        "w1": DaskWorker(running=0, waiting=0, done=0, memory=0, memory_limit=1000, spilled=70, paused=None),
    }


def test_a_new_rank_at_the_address_of_a_lost_one_has_done_nothing(engine):
    engine.add("w0/1")
    engine.ends(4)
    engine.monitor.add_worker(scheduler=None, worker=address_of("w0/1"))
    assert engine.workers["w0"].done == 0
    assert engine.monitor.status.done == 4


@pytest.mark.parametrize(
    ("state", "pause", "running"),
    [
        ({"status": Status.paused}, "memory", 2),
        ({"paused": True}, "training", 0),
        ({"status": Status.paused, "paused": True}, "training", 0),
    ],
)
def test_a_worker_with_a_rank_that_pauses_is_paused(engine, state, pause, running):
    engine.add("w0/1")
    engine.add("w0/2", processing=3, running=2, **state)
    worker = engine.workers["w0"]
    assert (worker.paused, worker.running, worker.waiting) == (pause, running, 3 - running)


class Dask:
    """A scheduler with a monitor, a Dask worker in this process, and a client."""

    def __init__(self, scheduler, client, monitor):
        self.scheduler, self.client, self.monitor = scheduler, client, monitor

    async def until(self, condition, seconds=20):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)

    async def states(self, expected):
        """Wait until the tasks in the scheduler have these states, and return how many tasks are done, failed and all.

        The monitor is refreshed first, because its last status may be a second old.
        """
        tasks = self.scheduler.tasks
        await self.until(lambda: Counter(task.state for task in tasks.values()) == Counter(expected.split()))
        return self.look()

    def look(self):
        self.monitor.look(self.scheduler.workers.values(), self.scheduler.task_prefixes.values())
        status = self.monitor.status
        return status.done, status.failed, status.tasks


@pytest.fixture
async def dask():
    monitor = TaskMonitor()
    async with (
        Scheduler(host="127.0.0.1", port=0, dashboard=False, plugins=[monitor]) as scheduler,
        Worker(scheduler.address, nthreads=1, name="w0/1", dashboard=False),
        Client(scheduler.address, asynchronous=True) as client,
    ):
        yield Dask(scheduler, client, monitor)


GATE = threading.Event()


@pytest.fixture
def gate():
    """Tasks wait until this is set. It belongs to the module, so that tasks can refer to it."""
    GATE.clear()
    yield GATE
    GATE.set()


def wait_for_gate(*_inputs):
    assert GATE.wait(20)


def fail(*_inputs):
    raise ValueError("as told")


async def test_what_needs_a_failed_task_is_not_waited_for(dask, gate):
    before = dask.client.submit(wait_for_gate, pure=False)
    failed = dask.client.submit(fail, before)
    after = dask.client.submit(wait_for_gate, dask.client.submit(wait_for_gate, failed), before)
    assert await dask.states("processing waiting waiting waiting") == (0, 0, 4)
    gate.set()
    assert await dask.states("memory erred erred erred") == (1, 3, 4)
    late = dask.client.submit(wait_for_gate, after)
    assert await dask.states("memory erred erred erred erred") == (0, 1, 1)
    del before, failed, after, late
    assert await dask.states("") == (0, 1, 1)


@pytest.mark.parametrize("force", [False, True])
async def test_cancelled_tasks_are_not_waited_for(dask, gate, force):
    first = dask.client.submit(wait_for_gate, pure=False)
    gate.set()
    await first
    gate.clear()
    futures = dask.client.map(wait_for_gate, range(4), pure=False)
    last = dask.client.submit(wait_for_gate, futures)
    await dask.until(lambda: dask.look()[-1] - dask.look()[0] == 5)
    await dask.client.cancel(futures, force=force)
    await dask.until(lambda: last.status == "cancelled")
    done, failed, tasks = await dask.states("memory")
    assert done + failed == tasks


async def test_tasks_that_are_released_are_not_waited_for(dask, gate):
    futures = [dask.client.submit(wait_for_gate, number, pure=False) for number in range(4)]
    await dask.until(lambda: dask.look() == (0, 0, 4))
    futures.clear()
    assert await dask.states("") == (0, 0, 0)


async def test_the_tasks_of_a_scheduler_that_ends_are_gone(dask, gate):
    """The user can end it with the client's `shutdown`."""
    futures = [dask.client.submit(wait_for_gate, number, pure=False) for number in range(4)]
    await dask.until(lambda: dask.look() == (0, 0, 4))
    assert dask.monitor.status.workers["w0"].busy
    await dask.scheduler.close()
    assert dask.monitor.status == DaskStatus(tasks=0, done=0, failed=0, workers={})
    futures.clear()
