"""Tests of the end of a job, on ranks that answer at once. tests/contract has jobs on real ranks."""

import json
import os
import pickle
import signal
from contextlib import asynccontextmanager
from types import SimpleNamespace

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pytest
from farandole.batches.parts import PartResult, compute_part
from farandole.batches.results import Skipped
from farandole.driver.batches import rank_keeper
from farandole.driver.batches.manifest import ERRORS, MANIFEST
from farandole.driver.batches.plan import BatchPlan, BatchRequest
from farandole.driver.cells.map_batches import BatchJob
from farandole.driver.data.cluster_data import ClusterData
from farandole.driver.elastic.run import RunCallbacks
from farandole.driver.loop import LoopThread
from farandole.exceptions import RankError, UsageError

PART = b"rows"
ADDRESS = "tls://10.0.0.1:1"


def double(batch):
    return {"n": batch["n"] * 2}


class Client:
    """Stands for a Dask client, whose tasks end at once. Each part that has rows lacks one record."""

    def __init__(self, rows):
        self.rows, self.handler = rows, None
        self.silent = False
        """Whether tasks do not end."""

    def subscribe_topic(self, _topic, handler):
        self.handler = handler

    def unsubscribe_topic(self, _topic):
        self.handler = None

    def compute(self, rows):
        return rows

    def submit(self, function, *arguments, workers, pure):
        if function is compute_part and not self.silent:
            _, part, _, target, _ = arguments
            self.handler((0.0, pickle.dumps((target.name, self._result(part, target)))))
        return SimpleNamespace(status="pending", release=lambda: None, add_done_callback=lambda _: None)

    def _result(self, part, target):
        if not self.rows:
            return PartResult()
        target.write_bytes(PART)
        return PartResult(rows=self.rows, size=len(PART), columns={"n": pa.int64()}, skipped=(skipped(part),))


def skipped(part):
    return Skipped(index=part.start, part=part.name, input="{}", stage="stage 1 (double)", error="ValueError")


class Cluster:
    """A fake core and engine of a cluster with one rank."""

    def __init__(self):
        self.kernels = [SimpleNamespace(rank=0, alive=True, worker=SimpleNamespace(name="w0"))]
        self.group = self.router = self
        self.runs, self.left, self.elastic, self.lacking = {}, set(), None, False
        self.at_look = lambda: None
        """Called when the keeper looks at the ranks."""

    def clear(self):
        return None

    @asynccontextmanager
    async def cell(self, _progress):
        yield

    async def lead(self, elastic):
        self.elastic = elastic
        return await elastic.run()

    async def interrupt(self):
        self.stop()

    def stop(self):
        self.elastic.stop()

    async def workers(self):
        self.at_look()
        return {} if self.lacking else {ADDRESS: 0}

    async def reconcile(self, _progress):
        return None

    join = reconcile


class Recorder:
    """Stands for the record of the run."""

    def __init__(self):
        self.run, self.ends = None, []

    def callbacks(self):
        return RunCallbacks(notice=lambda *_, **__: None, assigned=lambda _: None)

    def create(self, _plan):
        self.run = SimpleNamespace(id="run")
        return self.run

    def begin_progress(self, run, folder):
        assert (run, folder.done) == (self.run, {})

    def add(self, rank, _result):
        assert rank == 0

    def show(self):
        return None

    show_ranks = show

    def finish(self, _folder):
        self.ends.append("finished")

    def fail(self, _error, *, stopped):
        self.ends.append("stopped" if stopped else "failed")


class Job:
    def __init__(self, plan, rows=1):
        self.folder, self.run, self.cluster, self.client = plan.open(), Recorder(), Cluster(), Client(rows)
        self.loop = LoopThread("test")
        options = {"plan": plan, "folder": self.folder, "run": self.run}
        self.job = BatchJob(self.cluster, self.cluster, self.client, **options)

    def compute(self):
        try:
            return self.job.compute(self.loop, str)
        finally:
            self.folder.close()
            self.loop.close()

    def after_the_last_part(self, call):
        """Lose the rank after the last part, and call something once while it is being replaced."""

        def look():
            if not (self.folder.missing or self.cluster.lacking):
                self.cluster.lacking = True
                call()

        self.cluster.at_look = look


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(rank_keeper, "LOOK_SECONDS", 0.01)


@pytest.fixture
def plan(tmp_path):
    return planned(tmp_path / "out", [{"n": 1}, {"n": 2}])


def planned(to, source):
    about = {"batch_size": 1, "part_rows": 1, "on_error": "skip", "name": None}
    return BatchPlan.of(BatchRequest(stages=double, source=source, to=to, **about))


def empty_frame():
    return dd.from_pandas(pd.DataFrame({"n": [1, 2]}), npartitions=2).query("n > 2")


def call(plan):
    """Call `map_batches` for a folder in which no part is missing, so that no rank is needed."""
    data = ClusterData()
    data._control = SimpleNamespace(refuse_while_busy=lambda: None)
    request = plan.request
    return data.map_batches(double, request.source, request.to, batch_size=1, part_rows=1, on_error="skip")


def lines(plan):
    return len((plan.request.folder / ERRORS).read_text().splitlines())


def test_a_job_writes_what_was_left_out(plan):
    job = Job(plan)
    output = job.compute()
    assert (output.rows, len(output.skipped), lines(plan)) == (2, 2, 2)
    assert job.run.ends == ["finished"]


def test_a_stop_after_the_last_part_comes_too_late(plan):
    job = Job(plan)
    job.after_the_last_part(job.cluster.stop)
    assert job.compute().rows == 2
    assert lines(plan) == 2
    assert job.run.ends == ["finished"]


def test_an_interrupt_after_the_last_part_leaves_a_complete_output(plan):
    job = Job(plan)
    job.after_the_last_part(lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        job.compute()
    assert lines(plan) == 2
    assert job.run.ends == ["finished"]


def test_a_stop_before_the_last_part_stops_the_job(plan):
    job = Job(plan)
    job.client.silent = True
    job.cluster.at_look = lambda: job.run.run and job.cluster.stop()
    with pytest.raises(RankError, match="the job was stopped. Its complete parts are kept"):
        job.compute()
    assert job.run.ends == ["stopped"]
    assert not (plan.request.folder / ERRORS).exists()


def test_a_call_after_the_driver_was_killed_writes_what_was_left_out(plan):
    """The driver had written the manifest with the last part."""
    folder = plan.open()
    for part in folder.missing:
        target = folder.temporary(part)
        target.write_bytes(PART)
        result = PartResult(rows=1, size=len(PART), columns={"n": pa.int64()}, skipped=(skipped(part),))
        folder.add(part, result, target)
    folder.write()
    folder.close()
    assert not (plan.request.folder / ERRORS).exists()
    output = call(plan)
    assert (output.run, output.rows, lines(plan)) == (None, 2, 2)


def test_a_data_frame_without_rows_is_refused(tmp_path):
    plan = planned(tmp_path / "out", empty_frame())
    job = Job(plan, rows=0)
    with pytest.raises(UsageError, match="the data frame has no rows. Check how it was filtered"):
        job.compute()
    assert job.run.ends == ["failed"]
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["parts"] == {}
    corrected = planned(tmp_path / "out", [{"n": 1}]).open()
    assert len(corrected.missing) == 1
    corrected.close()


def test_a_data_frame_without_rows_is_refused_after_the_driver_was_killed(tmp_path):
    plan = planned(tmp_path / "out", empty_frame())
    folder = plan.open()
    for part in folder.missing:
        folder.add(part, PartResult(), folder.temporary(part))
    folder.write()
    folder.close()
    with pytest.raises(UsageError, match="the data frame has no rows"):
        call(plan)
    again = plan.open()
    assert len(again.missing) == 2
    again.close()
