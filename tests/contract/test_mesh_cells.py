"""Cells with a sharded model that are interrupted, lose a rank or are wrong, and what the next cell says."""

import time

import pytest
from farandole import Cluster, Elastic
from farandole.exceptions import RankDiedError, RankError
from farandole.runs.store import RunStore

from tests.cells import SUM, interrupt_when_it_prints, text

MODEL = """
import os, signal, threading, torch, farandole as fd
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
SHARD = "model, optimizer, _ = fd.prepare(model, optimizer, mesh={'shard': -1})\n"
STEP = """
optimizer.zero_grad()
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
print('stepped')
"""
ALONE = "print('in', flush=True)\nif fd.rank() == 0: model(torch.ones(2, 4))\nelse: {absent}\n"
"""Rank 0 waits in the forward pass for the parameters of rank 1."""
EVALUATE = """
from torch.distributed.tensor.parallel import ColwiseParallel
plan = {'0': ColwiseParallel(output_layouts=torch.distributed.tensor.Replicate())}
model, optimizer, _ = fd.prepare(model, optimizer, mesh={'tensor': 2}, plan=plan)
_, _, loader = fd.prepare(None, None, DataLoader(TensorDataset(torch.arange(5.0)), batch_size=2))
print([x.tolist() for (x,) in loader], len(loader))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


def test_an_interrupt_in_a_forward_pass_frees_the_ranks_and_the_next_cell_says_what_to_do(cluster):
    assert text(cluster.run(MODEL + SHARD + STEP)) == "stepped\n"
    code = ALONE.format(absent="threading.Event().wait()")
    assert interrupt_when_it_prints(lambda show: cluster.run(code, show=show)) < 5
    assert text(cluster.run(SUM["torch"])) == "2\n"
    with pytest.raises(RankError, match=r"ranks 0-1: UsageError: .* create the model again before fd.prepare"):
        cluster.run(STEP)
    with pytest.raises(RankError, match=r"ranks 0-1: UsageError: .*create the model again before fd.prepare with the"):
        cluster.run(SHARD)
    assert text(cluster.run(MODEL + SHARD + STEP)) == "stepped\n"


def test_a_rank_that_is_killed_is_named_and_the_next_run_works(cluster):
    begun = time.monotonic()
    kill = ALONE.format(absent="os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(RankDiedError, match=r"rank 1 .*: its process is gone, .*\nrank 0 waited for it and was rel"):
        cluster.train(MODEL + SHARD + STEP + kill)
    assert time.monotonic() - begun < 15
    assert text(cluster.run(MODEL + SHARD + STEP)) == "stepped\n"


def test_a_mesh_that_does_not_fit_ends_the_cell_on_all_ranks(cluster):
    with pytest.raises(RankError, match=r"ranks 0-1: UsageError: fd.prepare: the mesh .* has 3 ranks, and there are 2"):
        cluster.run(MODEL + SHARD.replace("-1", "3"))
    assert text(cluster.run(SUM["torch"])) == "2\n"


def test_an_elastic_run_names_the_alternative(cluster):
    cell = MODEL + "@fd.elastic\ndef train(state): pass\n" + SHARD + "train(fd.state(model, optimizer))"
    with pytest.raises(RankError, match="leave out --elastic and continue with --resume after a lost rank"):
        cluster.train(cell, elastic=Elastic())


def test_an_evaluation_without_a_mesh_follows_that_of_the_model(cluster):
    [block] = cluster.run(MODEL + EVALUATE)
    assert block.text == "[[0.0, 1.0], [2.0, 3.0], [4.0]] 3\n"
