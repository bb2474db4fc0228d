"""Tests of what the driver says about the tasks of Dask. The workers are objects of Dask, without processes."""

from collections import Counter

import pytest
from distributed.core import Status
from distributed.scheduler import WorkerState
from farandole.driver.data.monitor import TaskMonitor
from farandole.driver.data.status import DaskWorker


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
