"""Cells with a sharded model that are interrupted, lose a rank or are wrong, and what the next cell says."""

import time

import pytest
from farandole import Cluster, Elastic
from farandole.exceptions import RankDiedError, RankError
from farandole.runs.store import RunStore

from tests.cells import SUM, interrupt_when_it_prints, text

INTERRUPT_SECONDS = 6
"""On a busy machine, a rank is killed if it needs more than 4 seconds for the long traceback from inside torch."""
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

ELASTIC = """
state = fd.state(model, optimizer, step=0)
{checkpoint}

@fd.elastic
def train(state):
    while state.step < 20:
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        state.step += 1
        state.commit()
        checkpoints.wait()
        mark = {folder!r} + "/killed"
        if fd.rank() == 1 and state.step == 13 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

train(state)
with torch.no_grad():
    fd.result({{"size": fd.size(), "output": model(torch.ones(1, 4)).tolist()}})
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend="torch", store=store) as cluster:
        yield cluster


def test_an_interrupt_in_a_forward_pass_frees_the_ranks_and_the_next_cell_says_what_to_do(cluster):
    assert text(cluster.run(MODEL + SHARD + STEP)) == "stepped\n"
    code = ALONE.format(absent="threading.Event().wait()")
    assert interrupt_when_it_prints(lambda show: cluster.run(code, show=show)) < INTERRUPT_SECONDS
    assert text(cluster.run(SUM["torch"])) == "2\n"
    with pytest.raises(RankError, match=r"UsageError: The ranks no longer .* create the model again before fd.prepare"):
        cluster.run(STEP)
    with pytest.raises(RankError, match=r"UsageError: fd.prepare: .*create the model again before fd.prepare with the"):
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


def test_a_cell_after_one_that_destroys_the_process_groups_has_a_mesh(cluster):
    cell = MODEL + SHARD + STEP
    assert text(cluster.run(cell + "torch.distributed.destroy_process_group()")) == "stepped\n"
    assert text(cluster.run(cell)) == "stepped\n"


def test_an_evaluation_without_a_mesh_follows_that_of_the_model(cluster):
    [block] = cluster.run(MODEL + EVALUATE)
    assert block.text == "[[0.0, 1.0], [2.0, 3.0], [4.0]] 3\n"


def test_an_elastic_run_continues_from_its_newest_checkpoint(cluster, tmp_path):
    checkpoint = "checkpoints = fd.checkpoint(state, every=5)"
    cell = MODEL + SHARD + ELASTIC.format(checkpoint=checkpoint, folder=str(tmp_path))
    run = cluster.train(cell, elastic=Elastic())
    assert (tmp_path / "killed").exists()
    assert [result["size"] for result in run.results.values()] == [2, 2]
    assert any("rank 1 (worker main-w0) was lost: killed by signal 9" in notice for notice in run.notices)
    assert any("joined: continuing with 2 ranks from step 10" in notice for notice in run.notices)
    undisturbed = cluster.train(cell, elastic=Elastic())
    assert run.result["output"] == undisturbed.result["output"]


def test_an_elastic_run_without_checkpoints_names_them(cluster, tmp_path):
    cell = MODEL + SHARD + ELASTIC.format(checkpoint="", folder=str(tmp_path))
    with pytest.raises(RankError, match=r"UsageError: .* continues from checkpoints; call fd.checkpoint\(state\)"):
        cluster.train(cell, elastic=Elastic())
