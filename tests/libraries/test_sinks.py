"""Tests that experiment trackers have the whole of a run with real ranks that was started in a notebook."""

import json
from pathlib import Path

import nbformat
import pytest
from farandole.notebook.sinks.mlflow import EXPERIMENT
from farandole.runs.store import RunStore
from nbclient import NotebookClient

from tests.cells import elastic
from tests.libraries.offline_wandb import offline_runs

LOST = "rank 1 (worker main-w0) was lost: killed by signal 9 (SIGKILL): continuing with 1 rank from step 6"


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Return a function that runs an elastic cell with these options in a notebook. Rank 1 is killed in step 6.

    The function returns the run and its reports.
    """
    store = RunStore(tmp_path / "runs")
    monkeypatch.setenv("FARANDOLE_RUNS", str(store.folder))

    cell = elastic(tmp_path, epochs=1, samples=128, fault="time.sleep(0.1); kill(1, 6)")

    def train(options):
        cells = [
            "%load_ext farandole\n%cluster start --local --ranks 2 --backend torch",
            f"%%distributed_train --name kept --elastic {options}\n{cell}",
            "%cluster stop",
        ]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
        run = store.load("kept")
        assert run.notices == (LOST,)
        assert [output.text for output in notebook.cells[1].outputs if "text" in output] == [f"{LOST}\n"]
        return run, store.load_run(run.id)

    return train


def curves(rows):
    """Return the steps and values of each series of each rank, by the rank and the name of the series."""
    found = {}
    for rank in (0, 1):
        for name in ("loss", "size"):
            chosen = rows[rows["rank"] == rank]
            found[rank, name] = list(zip(chosen["step"], chosen[name], strict=True))
    assert len(found[0, "loss"]) > len(found[1, "loss"]) > 0
    return found


@pytest.mark.filterwarnings("ignore::FutureWarning:mlflow")
def test_mlflow_has_the_whole_run(tmp_path, monkeypatch, train):
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = f"file:{tmp_path / 'mlruns'}"
    run, rows = train(f"--mlflow {uri}")
    client = MlflowClient(tracking_uri=uri)
    [sent] = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    for (rank, name), curve in curves(rows).items():
        history = client.get_metric_history(sent.info.run_id, f"{name}/rank-{rank}")
        assert [(metric.step, metric.value) for metric in history] == curve
    assert (sent.info.run_name, sent.info.status) == ("kept", "FINISHED")
    params = {"backend": "torch", "size": "2", "resumed_from": "", "options.line": run.info.options["line"]}
    assert sent.data.params == params
    tags = sent.data.tags
    versions = {name.removeprefix("versions."): tags[name] for name in tags if name.startswith("versions.")}
    assert versions == run.info.versions != {}
    assert (tags["farandole.run"], tags["farandole.notices"]) == (run.id, LOST)
    files = {name: client.download_artifacts(sent.info.run_id, name, tmp_path) for name in ("code.py", "run.json")}
    texts = {name: Path(path).read_text() for name, path in files.items()}
    assert texts["code.py"] == run.code
    assert json.loads(texts["run.json"])["notices"] == [LOST]


@pytest.mark.release
def test_wandb_has_the_whole_run_without_a_network(tmp_path, monkeypatch, train):
    monkeypatch.setenv("WANDB_MODE", "offline")
    run, rows = train("--wandb digits")
    [sent] = offline_runs(tmp_path)
    for (rank, name), curve in curves(rows).items():
        key = f"{name}/rank_{rank}"
        assert [(row["step"], row[key]) for row in sent.history if key in row] == curve
    begun = sent.of("run")[0]
    assert (begun.project, begun.run_id, begun.display_name, sent.exit_code) == ("digits", run.id, "kept", 0)
    assert (sent.config["backend"], sent.config["size"]) == ("torch", 2)
    assert sent.config["options"] == run.info.options
    assert sent.config["versions"] == run.info.versions != {}
    assert (sent.summary["notices"], sent.summary["status"]) == ([LOST], "finished")
    assert sent.text("code.py") == run.code
    assert json.loads(sent.text("run.json"))["notices"] == [LOST]
