"""Tests of the measured memory of a prepared model."""

import gc
import subprocess
import sys

import pytest
import torch
from farandole.ranks.metrics import reporter, usage
from farandole.ranks.training import memory
from torch import nn

MIB = 2**20
FREED_UNITS = f"""\
import psutil, torch
from farandole.ranks.training import memory

memory.return_freed_memory()
before, kept = psutil.Process().memory_info().rss, []
for _ in range(50):
    units = [torch.ones({MIB}) for _ in range(3)]
    kept += [torch.ones(1000) for _ in units]  # small blocks behind the units keep a heap from shrinking
    del units
print(psutil.Process().memory_info().rss - before)
"""


class Doubled(nn.Module):
    """A layer whose activations are much larger than its parameters."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return (x[:, None] * self.weight).exp()


@pytest.fixture
def run(monkeypatch):
    own = reporter.Reporter()
    own.run = "a run"
    records = []
    monkeypatch.setattr(own, "put", lambda item: records.append(item()))
    monkeypatch.setattr(reporter, "current", lambda: own)
    usage.model_memory().clear()
    yield records
    usage.model_memory().clear()


def train(model, optimizer, x):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()


def test_the_first_step_is_reported_at_once_and_is_in_every_sample(run):
    model = nn.Linear(100, 50)
    optimizer = torch.optim.Adam(model.parameters())
    memory.follow(model, optimizer, 7)
    train(model, optimizer, torch.ones(3, 100))
    [record] = run
    assert record["parameters_bytes"] == record["gradients_bytes"] == 4 * 5050
    assert record["optimizer_bytes"] == 2 * 4 * 5050 + 2 * 4  # Adam counts the steps of each parameter
    assert record["step_sent_bytes"] == 7
    assert usage.sample(0)["optimizer_bytes"] == record["optimizer_bytes"]
    train(model, optimizer, torch.ones(3, 100))
    assert len(run) == 1


@pytest.mark.skipif(not memory.PROCESS.is_dir(), reason="needs the peak of a process from Linux")
def test_the_peak_of_activations_is_measured(run):
    model = Doubled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, torch.ones(3))
    memory.follow(model, optimizer)
    train(model, optimizer, torch.ones(16 * MIB // 4))
    # The product and its exponential have 64 MiB each.
    assert 100 * MIB < run[0]["activations_bytes"] < 500 * MIB


@pytest.mark.skipif(not memory.PROCESS.is_dir(), reason="needs the memory of a process from Linux")
def test_freed_units_return_to_the_kernel():
    # In the process of the tests, the units may find room between objects of other tests.
    done = subprocess.run([sys.executable, "-c", FREED_UNITS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10 * MIB


def test_the_memory_of_all_models_has_what_only_autograd_keeps():
    gc.collect()  # models of other tests
    before = memory.bytes_of_all_models()
    model = nn.Linear(100, 100)
    optimizer = torch.optim.Adam(model.parameters())
    loss = model(torch.ones(1, 100)).sum()
    loss.backward()
    optimizer.step()
    size, steps = 4 * 10_100, 2 * 4  # Adam counts the steps of each parameter
    assert memory.bytes_of_all_models() - before == 4 * size + steps
    del model, optimizer
    assert memory.bytes_of_all_models() - before == 2 * size
    del loss
    assert memory.bytes_of_all_models() == before


def test_a_kernel_without_peaks_has_no_activations(run, monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "none")
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory.follow(model, optimizer)
    train(model, optimizer, torch.ones(3, 2))
    assert run[0]["activations_bytes"] is None


def test_only_the_last_model_is_measured(run):
    models = [nn.Linear(2, 2), nn.Linear(3, 3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for model, optimizer in zip(models, optimizers, strict=True):
        memory.follow(model, optimizer)
    train(models[0], optimizers[0], torch.ones(1, 2))
    assert run == []
    train(models[1], optimizers[1], torch.ones(1, 3))
    assert [record["parameters_bytes"] for record in run] == [48]


def test_nothing_is_measured_outside_a_run_or_without_an_optimizer_of_torch(monkeypatch):
    monkeypatch.setattr(reporter, "current", reporter.Reporter)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory.follow(model, optimizer)
    memory.follow(model, object())
    train(model, optimizer, torch.ones(1, 2))
    assert usage.model_memory() == {}


def test_a_run_begins_without_the_figures_of_an_earlier_one():
    usage.model_memory()["parameters_bytes"] = 3
    reporter.Reporter().begin("another run")
    assert usage.model_memory() == {}
