"""`Run.save_model` asks rank 0 to save a model. Rank 0 evaluates what it is sent in this process."""

import json
import subprocess

import numpy as np
import pytest
import torch
from farandole.driver.cells import runner
from farandole.driver.cells.runner import CellRunner, TrainRequest
from farandole.driver.core.core import ClusterCore
from farandole.driver.loop import LoopThread
from farandole.driver.recovery.reattach import FoundRun, about
from farandole.driver.workers.journal import JournalInfo, WorkerJournal
from farandole.driver.workers.worker import WorkerOptions
from farandole.exceptions import ModelError, UsageError
from farandole.models.store import ModelStore
from farandole.runs.store import RunStore
from IPython.core.interactiveshell import InteractiveShell
from torch import nn

from tests.workers import Hub, Stubs


def ignore(*_):
    return None


class Cluster:
    """A cluster of two stub ranks, whose cells end at once. Rank 0 evaluates its calls in this process."""

    def __init__(self, folder):
        self.loop = LoopThread()
        self.core = self.loop.call(self.make_core())
        self.store = RunStore(folder)
        self.training = CellRunner(self.core, self.loop, self.store, logs=None, progress=ignore)
        self.loop.call(self.core.start(2, WorkerOptions(cluster="c"), ignore, 60))
        self.core.group.kernels[0].evaluate = self.evaluate
        self.expressions = []

    async def make_core(self):
        hub = Hub()
        core = ClusterCore("c", hub, backend="none", on_notice=ignore)
        core._pool = Stubs("c", hub, hear=ignore, on_notice=ignore)
        return core

    async def evaluate(self, expression, *, subshell=None):
        reply = self.core.group.kernels[0].reply("ok")
        if "save_variable" in expression:
            self.expressions.append(expression)
            reply = type(reply)(**{**vars(reply), "value": json.loads(eval(expression))})
        return reply

    def train(self):
        for rank in self.core.group.kernels:
            self.loop.loop.call_soon_threadsafe(rank.over.set)
        return self.training.train(TrainRequest(code="x"))

    def take_up(self, *runs, led=False):
        """Take over runs that another driver began, according to the journals of the workers."""
        journals = [
            JournalInfo(run=run.id, kernel="k", requests={}, led=led, count=0, about=about(run), rank=0, ended=5.0)
            for run in runs
        ]

        async def records():
            return WorkerJournal(kernels=("k",), records=tuple(journals))

        for handle in self.core.handles:
            handle.worker.records = records
        self.training.take_up()


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    shell.user_ns |= {"model": nn.Linear(4, 2), "x": torch.ones(1, 4)}
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("FARANDOLE_MODELS", str(tmp_path / "models"))
    return ModelStore()


@pytest.fixture
def cluster(tmp_path, monkeypatch, shell, models):
    # No journal is read.
    monkeypatch.setattr(FoundRun, "readers", lambda self, on_records: [])
    monkeypatch.setattr(runner, "CATCH_UP_SECONDS", 0.0)
    cluster = Cluster(tmp_path / "runs")
    yield cluster
    cluster.loop.close()


def test_a_model_is_saved_with_what_is_known_of_its_run(cluster, models, tmp_path, monkeypatch):
    for words in ("init -q", "-c user.name=t -c user.email=t@t commit -q --allow-empty -m one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    run = cluster.train()
    monkeypatch.chdir("/")
    assert run.save_model("iris", example="x", metrics={"accuracy": np.float64(0.5)}, data="v1") == "iris:1"
    info = models.find("iris")
    assert (info.run, info.metrics, info.data) == (run.id, {"accuracy": 0.5}, "v1")
    assert info.git.removesuffix("-dirty") == run.info.git["commit"]
    assert [str(one) for one in info.inputs] == ["input: FP32 [-1, 4]"]


def test_all_that_a_rank_gets_is_plain(cluster, models):
    run = cluster.train()
    name, metrics = np.str_("iris"), {np.str_("a"): torch.tensor(0.5)}
    assert run.save_model(name, metrics=metrics, data=np.str_("v1"), onnx=np.False_) == "iris:1"
    [expression] = cluster.expressions
    assert "np." not in expression
    assert "{'git': '" in expression
    assert "'metrics': {'a': 0.5}, 'data': 'v1', 'labels': [], 'onnx': False}" in expression


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"metrics": {"loss": float("nan")}}, UsageError, "the metric 'loss' is nan; metrics are finite numbers"),
        ({"name": "Iris"}, UsageError, "'Iris' cannot be the name of a model"),
        ({"model": "modle"}, ModelError, r"the ranks have no variable 'modle'; .* Did you mean 'model'\?"),
        ({"model": "x"}, ModelError, "saves a torch.nn.Module, not a Tensor"),
    ],
)
def test_what_cannot_be_saved_is_named(cluster, models, arguments, error, message):
    run = cluster.train()
    with pytest.raises(error, match=message):
        run.save_model(**{"name": "iris", **arguments})
    assert models.names() == []


def test_the_variables_of_a_later_run_are_not_saved_with_an_earlier_one(cluster, models):
    first, second = cluster.train(), cluster.train()
    with pytest.raises(UsageError, match=f"has begun run {second.id} since run {first.id}, so a variable may have"):
        first.save_model("iris")
    assert second.save_model("iris") == "iris:1"
    assert models.find("iris").run == second.id


def begun(cluster, number):
    """Return runs that another driver began, and whose end it has not recorded."""
    runs = [
        cluster.store.create(code="x", cluster="c", backend="none", size=1, workers=["c-w0"]) for _ in range(number)
    ]
    for run in runs:
        run.let_go()
    return runs


def test_a_model_of_a_run_that_was_taken_over_is_saved(cluster, models):
    earlier, newest = begun(cluster, 2)
    cluster.take_up(newest, earlier)
    taken = {run_id: background.run for run_id, background in cluster.training.background.items()}
    with pytest.raises(UsageError, match=f"has begun run {newest.id} since run {earlier.id}"):
        taken[earlier.id].save_model("iris")
    assert taken[newest.id].save_model("iris") == "iris:1"
    assert models.find("iris").run == newest.id


def test_a_model_of_a_run_that_another_driver_leads_is_not_saved(cluster, models):
    [run] = begun(cluster, 1)
    cluster.take_up(run, led=True)
    with pytest.raises(UsageError, match=f"does not lead the cluster of run {run.id}; save the model in its cell"):
        cluster.training.background[run.id].run.save_model("iris")


def test_a_run_without_a_cluster_says_so(tmp_path):
    run = RunStore(tmp_path).create(code="x", backend="none", size=1, workers=["c-w0"])
    with pytest.raises(UsageError, match="this notebook does not lead the cluster of run"):
        run.save_model("iris")
