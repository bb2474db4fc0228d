"""Tests that a run on real ranks shows the memory of its model, and that the error of a killed rank names a mesh."""

import time

import pytest
from farandole import Cluster
from farandole.exceptions import RankDiedError
from farandole.runs.store import RunStore
from farandole.runs.view import view_of

DEADLINE = 60
MEMORY = 800 * 2**20
"""The memory of a rank in bytes. Half of the large model fits into it, but not the whole model."""
TRAIN = """
import farandole as fd, torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
model, optimizer, _ = fd.prepare(model, torch.optim.Adam(model.parameters()), mesh={"shard": 2})
model(torch.ones(2, 8)).mean().backward()
optimizer.step()
"""
SMALL_RANK = f"""
import farandole as fd, os, signal, time, torch
from pathlib import Path
from torch import nn
from farandole.ranks.preflight import machine

machine.share_of_memory = lambda *_: {MEMORY}
"""
LARGE = """
class Large(nn.Sequential):
    def to(self, *_):  # as if the rank were killed when the model gets its memory
        die()

model = Large(*(nn.Linear(2048, 2048, bias=False) for _ in range(8)))  # 8 units of 16 MiB
optimizer = torch.optim.Adam(model.parameters())
model, optimizer, _ = fd.prepare(model, optimizer, mesh={mesh})
"""
DIE = """
def die():
    while not Path({flag!r}).exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_memory_of_a_model_is_shown_and_a_rank_that_is_too_small_is_told_the_mesh(tmp_path):
    flag = tmp_path / "flag"
    store = RunStore(tmp_path / "runs")
    with Cluster.start(local=True, ranks=2, backend="torch", store=store, progress=lambda _: None) as cluster:
        rows = view_of(cluster.train(TRAIN), 0.0)["ranks"]
        share = 2 * (8 * 8 + 8) * 4 // 2
        assert [row["model"]["parameters"] for row in rows] == [share, share]
        assert all(row["model"]["optimizer"] >= 2 * share for row in rows)
        # Both layers are gathered twice, and their gradients are reduced once.
        assert [row["model"]["step_sent"] for row in rows] == [3 * share, 3 * share]
        die = SMALL_RANK + DIE.format(flag=str(flag))
        assert "of an earlier cell" not in killed(cluster, die + LARGE.format(mesh=None), flag)
        cluster.train(SMALL_RANK + LARGE.format(mesh={"shard": 2}))
        # As if the ranks had no room for another model while they still have the first one.
        assert "of an earlier cell was still in memory" in killed(cluster, die + "die()", flag)


def killed(cluster, cell, flag):
    """Return the error of a cell whose ranks are killed once the driver has received their prediction."""
    flag.unlink(missing_ok=True)
    run = cluster.train(cell, detach=True)
    deadline = time.monotonic() + DEADLINE
    while not all(view.advice for view in run.ranks()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    flag.touch()
    with pytest.raises(RankDiedError, match=r"is gone.*The smallest mesh that fits is mesh=.'shard': 2"):
        run.wait(DEADLINE)
    assert "mesh={'shard': 2}" in run.error
    return run.error
