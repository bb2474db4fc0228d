"""Cells that log to MLflow and W&B themselves, from one rank and from all ranks, as the documentation of each shows."""

import pytest
from farandole import Cluster
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import SUM, text
from tests.libraries.offline_wandb import offline_runs

STEPS = 5
pytestmark = [pytest.mark.release, pytest.mark.filterwarnings("ignore::FutureWarning:mlflow")]

TRAIN = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
{begin}
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
{start}
for step in range({steps}):
    loss = model(torch.randn(8, 10)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {log}
print("trained")
{end}
dist.destroy_process_group()
import farandole
farandole.result([loss.item(), [value for each in model.parameters() for value in each.detach().flatten().tolist()]])
"""
MLFLOW = {
    "begin": "import mlflow\nmlflow.set_tracking_uri({uri!r})\nmlflow.set_experiment('digits')",
    "start": "{guard}mlflow.start_run(run_name=f'rank {{rank}}')\n{guard}mlflow.log_params({{'lr': 0.1}})",
    "log": "{guard}mlflow.log_metric('loss', loss.item(), step=step)",
    "end": "{guard}mlflow.end_run()",
}
WANDB = {
    "begin": "import wandb\nconfig = {{'lr': 0.1}}",
    "start": "{guard}run = wandb.init(project='digits', group='DDP', mode='offline', dir={uri!r}, config=config)",
    "log": "{guard}run.log({{'loss': loss.item()}})",
    "end": "{guard}run.finish()",
}


def cell(parts, uri, *, everywhere):
    """Return a cell that trains on all ranks and logs from rank 0 or from all ranks."""
    guard = "" if everywhere else "if rank == 0: "
    return TRAIN.format(steps=STEPS, **{name: part.format(uri=uri, guard=guard) for name, part in parts.items()})


@pytest.fixture
def losses(tmp_path, monkeypatch):
    """Return a function that trains twice in a row, and returns the last loss of the ranks that have logged."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")

    def losses(code, *, everywhere):
        with Cluster.start(local=True, ranks=2, backend="torch", store=RunStore(tmp_path / "runs")) as cluster:
            shown = []
            runs = [cluster.train(code, show=shown.append) for _ in range(2)]
            assert text(cluster.run(SUM["torch"])) == "2\n"
        assert "trained\n" in text(shown)
        for run in runs:
            assert run.status is Status.FINISHED
            assert run.results[0][1] == run.results[1][1]
        return [run.results[rank][0] for run in runs for rank in ((0, 1) if everywhere else (0,))]

    return losses


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_cell_logs_to_mlflow(tmp_path, losses, everywhere):
    from mlflow import MlflowClient

    uri = f"file:{tmp_path / 'mlruns'}"
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("digits")
    expected = losses(cell(MLFLOW, uri, everywhere=everywhere), everywhere=everywhere)
    runs = client.search_runs([experiment])
    assert sorted(run.data.metrics["loss"] for run in runs) == sorted(expected)
    for run in runs:
        assert [metric.step for metric in client.get_metric_history(run.info.run_id, "loss")] == list(range(STEPS))
        assert (run.data.params, run.info.status) == ({"lr": "0.1"}, "FINISHED")


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_cell_logs_to_wandb_without_a_network(tmp_path, losses, everywhere):
    expected = losses(cell(WANDB, str(tmp_path), everywhere=everywhere), everywhere=everywhere)
    runs = offline_runs(tmp_path)
    assert sorted(run.history[-1]["loss"] for run in runs) == pytest.approx(sorted(expected))
    for run in runs:
        assert [row["_step"] for row in run.history] == list(range(STEPS))
        assert (run.config["lr"], run.exit_code) == (0.1, 0)
        assert (run.of("run")[0].project, run.of("run")[0].run_group) == ("digits", "DDP")
