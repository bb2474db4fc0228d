"""Tests of how parts are given to ranks, with a Dask client whose tasks the test ends."""

import pickle
import platform
import threading
from types import SimpleNamespace

import pytest
from distributed import KilledWorker
from farandole.batches.parts import JobSpec, Part, PartResult, compute_part, open_job
from farandole.driver.batches.dispatcher import MOST_LOSSES, Dispatcher
from farandole.exceptions import RankDiedError, RankError

PARTS = [Part(name=f"part-{place}", start=place, stop=place + 1) for place in range(4)]
SPEC = JobSpec(stages=b"", source=None, python=platform.python_version(), batch_size=1, skip=False)


class Future:
    def __init__(self, address, function, arguments):
        self.address, self.function, self.arguments = address, function, arguments
        self.status, self.released, self.error = "pending", False, None

    def add_done_callback(self, callback):
        self.callback = callback

    def release(self):
        self.released = True

    def exception(self):
        return self.error


class Client:
    def __init__(self):
        self.tasks, self.topics = [], {}

    def submit(self, function, *arguments, workers, pure):
        [address] = workers
        future = Future(address, function, arguments)
        self.tasks.append(future)
        return future

    def subscribe_topic(self, topic, handler):
        self.topics[topic] = handler

    def unsubscribe_topic(self, topic):
        del self.topics[topic]

    def parts(self, address=None):
        """Return the parts that were given to a worker or to all, in their order."""
        computed = [task for task in self.tasks if task.function is compute_part]
        return [task.arguments[1].name for task in computed if address in {None, task.address}]

    def finish(self, part, **result):
        """Send the result of the newest task of a part."""
        task = [one for one in self.tasks if one.function is compute_part and one.arguments[1].name == part][-1]
        [handler] = self.topics.values()
        handler((0.0, pickle.dumps((task.arguments[3].name, PartResult(**result)))))


class Job:
    def __init__(self, tmp_path):
        self.client, self.done, self.wake = Client(), [], threading.Event()
        self.count = iter(range(100))
        self.dispatcher = Dispatcher(
            self.client,
            SPEC,
            PARTS,
            payload=lambda part: part.name.encode(),
            target=lambda part: tmp_path / f"{part.name}-{next(self.count)}",
            on_done=lambda part, result, target, rank: self.done.append((part.name, result.rows, target.name, rank)),
            wake=self.wake,
        )

    def advance(self, *workers, left=()):
        self.dispatcher.left = frozenset(left)
        self.dispatcher.workers = {address: rank for rank, address in enumerate(workers)}
        self.dispatcher.advance()


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_each_worker_has_one_part_at_a_time(job):
    job.advance()
    assert job.client.tasks == []
    job.advance("a", "b")
    job.advance("a", "b")
    assert (job.client.parts("a"), job.client.parts("b")) == (["part-0"], ["part-1"])
    job.client.finish("part-1", rows=7)
    assert job.wake.is_set()
    job.advance("a", "b")
    assert job.done == [("part-1", 7, "part-1-1", 1)]
    assert job.client.parts("b") == ["part-1", "part-2"]
    for part in ("part-0", "part-2", "part-3"):
        job.client.finish(part, rows=1)
        job.advance("a", "b")
    assert job.dispatcher.done
    assert [part for part, *_ in job.done] == ["part-1", "part-0", "part-2", "part-3"]


def test_a_worker_gets_the_job_once(job):
    job.advance("a")
    job.client.finish("part-0")
    job.advance("a")
    opened = [task for task in job.client.tasks if task.function is open_job]
    assert [task.arguments for task in opened] == [(SPEC,)]
    assert {task.arguments[0] for task in job.client.tasks if task.function is compute_part} == set(opened)
    assert job.client.tasks[1].arguments[2] == b"part-0"


def test_the_part_of_a_lost_worker_is_the_next_one(job):
    job.advance("a", "b")
    job.advance("b")
    job.client.finish("part-1")
    job.advance("b")
    assert job.client.parts("b") == ["part-1", "part-0"]
    assert job.client.tasks[1].released


def test_all_workers_may_be_lost(job):
    job.advance("a", "b")
    job.advance()
    assert not job.dispatcher.done
    job.advance("c")
    assert job.client.parts("c") == ["part-1"]


def test_the_result_that_a_lost_worker_has_sent_counts(job):
    job.advance("a")
    job.client.finish("part-0", rows=1)
    job.advance("b")
    assert [part for part, *_ in job.done] == ["part-0"]
    assert job.client.parts("b") == ["part-1"]


def test_a_result_that_is_late_is_ignored(job):
    job.advance("a")
    late = job.client.tasks[1].arguments[3].name
    job.advance()
    [handler] = job.client.topics.values()
    handler((0.0, pickle.dumps((late, PartResult(rows=1)))))
    job.advance("b")
    assert job.done == []
    assert job.client.parts("b") == ["part-0"]


def test_a_part_that_loses_its_rank_each_time_ends_the_job(job):
    for address in "abc":
        job.advance(address)
        job.advance()
    job.advance("d")
    with pytest.raises(RankDiedError, match="part-0 has lost its rank 4 times"):
        job.advance()


def test_the_error_of_a_part_is_raised_after_other_results_are_taken(job):
    job.advance("a", "b")
    job.client.finish("part-0", failure=RankError("stage 1 failed"))
    job.client.finish("part-1", rows=1)
    with pytest.raises(RankError, match="stage 1 failed"):
        job.advance("a", "b")
    assert [part for part, *_ in job.done] == ["part-1"]


@pytest.mark.parametrize("error", [ValueError("no column n"), MemoryError("no room")])
def test_a_task_that_dask_cannot_run_ends_the_job(job, error):
    job.advance("a")
    job.client.tasks[1].status, job.client.tasks[1].error = "error", error
    said = f"part-0 cannot be computed: {type(error).__name__}: {error}. The parts that are complete are kept, and"
    with pytest.raises(RankError, match=said):
        job.advance("a")


def test_a_partition_that_ends_its_ranks_ends_the_job(job):
    job.advance("a")
    job.client.tasks[1].status = "error"
    job.client.tasks[1].error = KilledWorker("read", SimpleNamespace(address="tls://10.0.0.1:1"), 3)
    with pytest.raises(RankDiedError, match="part-0 cannot be computed, because its tasks have ended 4 ranks.*smaller"):
        job.advance("a")


def test_tasks_that_were_cancelled_run_again_and_are_no_losses(job):
    for number in range(2 * MOST_LOSSES):
        job.advance("a")
        assert job.client.parts() == ["part-0"] * (number + 1)
        job.client.tasks[-1].status = "cancelled"


def test_ranks_that_are_stopped_on_purpose_are_no_losses(job):
    for number in range(2 * MOST_LOSSES):
        job.advance(f"rank-{number}")
        job.advance(left=[f"rank-{number}"])
    job.advance("a")
    assert job.client.parts("a") == ["part-0"]


def test_a_result_that_is_lost_with_its_rank_is_a_loss(job):
    for _ in range(MOST_LOSSES - 1):
        job.advance("a")
        job.client.tasks[-1].status = "lost"
    job.advance("a")
    job.client.tasks[-1].status = "lost"
    with pytest.raises(RankDiedError, match="part-0 has lost its rank 4 times"):
        job.advance("a")


class Interrupted(list):
    def append(self, _):
        raise KeyboardInterrupt


def test_a_part_whose_result_was_being_taken_at_an_interrupt_is_missing(job):
    job.advance("a")
    for part in ("part-0", "part-1", "part-2"):
        job.client.finish(part)
        job.advance("a")
    job.client.finish("part-3")
    job.done = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        job.advance("a")
    assert not job.dispatcher.done


def test_all_jobs_of_a_client_have_one_topic(job, tmp_path):
    [topic] = job.client.topics
    job.dispatcher.close()
    other = Job(tmp_path)
    assert list(other.client.topics) == [topic]
    assert job.client.topics == {}


def test_the_results_of_an_earlier_job_are_ignored(job):
    job.advance("a")
    [handler] = job.client.topics.values()
    handler((0.0, pickle.dumps(("part-0-of-another-job", PartResult(failure=RankError("stage 1 failed"))))))
    job.advance("a")
    assert job.done == []
    assert job.client.parts() == ["part-0"]


def test_the_end_withdraws_all_parts(job):
    job.advance("a", "b")
    job.dispatcher.close()
    assert [task.released for task in job.client.tasks if task.function is compute_part] == [True, True]
    assert job.client.topics == {}
