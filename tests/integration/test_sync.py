"""The modes of fd.sync in runs of a cluster, on both backends."""

import re
from collections import Counter

import pytest
from farandole import Cluster, Elastic
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import elastic

CELL = """
import os, signal, subprocess, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import farandole as fd

torch.manual_seed(0)
data = TensorDataset(torch.randn(400, 8), torch.randint(0, 2, (400,)))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
model, optimizer, loader = fd.prepare(model, optimizer, DataLoader(data, batch_size=10), sync={sync})
for epoch in range(4):
    if {stopped} and fd.rank() == 1 and epoch == 1:
        subprocess.Popen(["sh", "-c", f"sleep {stopped}; kill -CONT {{os.getpid()}}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
fd.result([time.time(), float(sum(p.detach().double().sum() for p in model.parameters()))])
"""
PARAMETERS = 8 * 16 + 16 + 16 * 2 + 2
LOCAL = "fd.sync.local(every=4, delay=3, warmup=0)"
ASYNCHRONOUS = "fd.sync.asynchronous(every=4)"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="none", store=store) as cluster:
        yield cluster


def train(cluster, backend, sync, stopped=0):
    run = cluster.train(CELL.format(sync=sync, stopped=stopped), backend=backend)
    assert run.status == Status.FINISHED
    (first, own), (second, other) = run.results[0], run.results[1]
    return run, second - first, abs(own - other)


@pytest.mark.parametrize("backend", ["torch", "horovod"])
def test_a_local_run_keeps_its_figures(cluster, backend):
    run, _, difference = train(cluster, backend, "fd.sync.local(every=4, payload='fp32', warmup=0)")
    assert difference == 0
    assert set(run.info.sync) == {0, 1}
    for figures in run.info.sync.values():
        assert figures["mode"] == "local, fp32 every 4 steps"
        assert 0 <= figures["waiting"] <= 1
        assert PARAMETERS / 4 <= figures["bytes_per_step"] / 4 <= PARAMETERS / 2
        assert figures["staleness"] <= 4


@pytest.mark.parametrize("backend", ["torch", "horovod"])
@pytest.mark.parametrize(
    ("sync", "mode", "size"),
    [("'step'", "step", 4 * PARAMETERS), ("fd.sync.compressed('fp16')", "compressed, fp16", 2 * PARAMETERS)],
)
def test_a_run_that_averages_gradients_keeps_its_figures(cluster, backend, sync, mode, size):
    run, _, difference = train(cluster, backend, sync)
    assert difference == 0
    assert set(run.info.sync) == {0, 1}
    for figures in run.info.sync.values():
        assert (figures["mode"], figures["bytes_per_step"], figures["staleness"]) == (mode, size, 0)
        assert 0 <= figures["waiting"] <= 1


@pytest.mark.parametrize("backend", ["torch", "horovod"])
def test_auto_says_what_it_chooses(cluster, backend):
    run, _, difference = train(cluster, backend, "fd.sync.auto()")
    assert difference == 0
    [sentence] = run.notices
    measured, choice = sentence.split(": ")
    assert re.fullmatch(r"an average of \d+ B takes [\d.]+ m?s here, a step [\d.]+ m?s", measured)
    assert re.match(r"averaging (after each step|every \d+ steps) in \d+ bits", choice)
    assert all(figures["mode"].startswith("local, ") for figures in run.info.sync.values())


@pytest.mark.parametrize("backend", ["torch", "horovod"])
def test_no_rank_waits_for_a_stopped_one_in_asynchronous_mode(cluster, backend):
    run, later, _ = train(cluster, backend, ASYNCHRONOUS, stopped=4)
    assert later > 2
    assert {figures["mode"] for figures in run.info.sync.values()} == {"asynchronous, fp16 every 4 steps"}


@pytest.mark.parametrize(
    ("backend", "sync"),
    [
        ("torch", LOCAL),
        ("horovod", ASYNCHRONOUS),
        pytest.param("horovod", LOCAL, marks=pytest.mark.release),
        pytest.param("torch", ASYNCHRONOUS, marks=pytest.mark.release),
    ],
)
def test_an_elastic_run_goes_on_after_a_rank_was_lost_between_two_exchanges(cluster, tmp_path, backend, sync):
    # Train slowly until the new rank has joined.
    fault = "kill(1, 22); time.sleep(0.3 if fd.size() == 1 else 0)"
    run = cluster.train(elastic(tmp_path, epochs=6, fault=fault, sync=sync), backend=backend, elastic=Elastic())
    assert run.status == Status.FINISHED
    assert any("rank 1 (worker main-w0) was lost" in notice for notice in run.notices)
    assert any("rank 1 joined: continuing with 2 ranks" in notice for notice in run.notices)
    for result in run.results.values():
        assert Counter(result["seen"]) == dict.fromkeys(range(248), 6)
    if "local" in sync:
        assert run.results[0]["weights"] == run.results[1]["weights"]
