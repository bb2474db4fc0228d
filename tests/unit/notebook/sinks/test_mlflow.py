"""Tests that MLflow's own client can read a run that was sent to a local store, and its final status."""

import builtins

import pytest
from farandole.exceptions import UsageError
from farandole.notebook.sinks.delivery import Delivery
from farandole.notebook.sinks.mlflow import EXPERIMENT, MLflowTracker, check_mlflow
from farandole.notebook.watcher import Watcher
from farandole.protocol import Report, Status, report_to_json
from farandole.runs.store import RunStore

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:mlflow")


@pytest.fixture
def uri(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    pytest.importorskip("mlflow")
    return f"file:{tmp_path / 'mlruns'}"


def start(tmp_path):
    return RunStore(tmp_path / "runs").create(
        code="loss = 1",
        name="first",
        backend="torch",
        size=2,
        workers=["a", "b"],
        options={"line": "--elastic"},
        config={"lr": 0.1},
    )


def found(uri):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def test_a_store_holds_metrics_parameters_code_and_lost_ranks(tmp_path, uri):
    run = start(tmp_path)
    delivery = Delivery(run, MLflowTracker(uri))
    for step in range(300):
        for rank in range(2):
            values = {"loss": float(step * (rank + 1)), "top@5": 1.0}
            run.add_records(rank, report_to_json(Report(rank=rank, time=float(step), step=step, values=values)))
    run.notice("rank 1 was lost")
    run.finish(Status.FINISHED)
    delivery.close()
    delivery.wait(60)
    client, sent = found(uri)
    history = client.get_metric_history(sent.info.run_id, "loss/rank-1")
    assert sorted((m.step, m.value) for m in history) == [(step, step * 2.0) for step in range(300)]
    assert "top_5/rank-0" in sent.data.metrics
    assert sent.data.params["backend"] == "torch"
    assert sent.data.params["options.line"] == "--elastic"
    assert sent.data.params["config.lr"] == "0.1"
    assert sent.data.tags["farandole.notices"] == "rank 1 was lost"
    assert {file.path for file in client.list_artifacts(sent.info.run_id)} == {"code.py", "run.json"}
    assert sent.info.run_name == "first"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.FINISHED, "FINISHED"),
        (Status.FAILED, "FAILED"),
        (Status.INTERRUPTED, "KILLED"),
        (Status.LOST, "FAILED"),
    ],
)
def test_the_status_of_a_detached_run_is_sent_when_it_ends(tmp_path, uri, status, expected):
    run = start(tmp_path)
    watcher = Watcher(trackers=[MLflowTracker(uri)])
    refresh = watcher(run)
    refresh()
    run.finish(status)
    refresh()
    watcher.finish()
    assert found(uri)[1].info.status == expected


def test_an_unusable_store_ends_only_the_delivery(tmp_path, uri):
    (tmp_path / "mlruns").write_text("in the way")
    run = start(tmp_path)
    delivery = Delivery(run, MLflowTracker(uri))
    run.add_records(0, report_to_json(Report(rank=0, time=1.0, step=1, values={"loss": 1.0})))
    run.finish(Status.FINISHED)
    delivery.close()
    delivery.wait(60)
    assert len(run.dataframe()) == 1
    assert sum("MLflow" in text for text in run.notices) == 1


def test_a_missing_mlflow_is_reported_before_the_run(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("mlflow"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match="pip install mlflow-skinny"):
        check_mlflow()
