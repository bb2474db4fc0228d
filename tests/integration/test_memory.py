"""Tests that a run on real ranks shows the memory of its model, and that the error of a killed rank names a mesh."""

import time

import pytest
from farandole import Cluster
from farandole.exceptions import RankDiedError
from farandole.runs.store import RunStore
from farandole.runs.view import view_of

DEADLINE = 60
MEMORY = 800 * 2**20
"""The memory of a rank in bytes. It has room for half of the large model, but not for all."""
TRAIN = """
import farandole as fd, torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
model, optimizer, _ = fd.prepare(model, torch.optim.Adam(model.parameters()), mesh={"shard": 2})
model(torch.ones(2, 8)).mean().backward()
optimizer.step()
"""
LARGE = """
import os, signal, time
from pathlib import Path
from farandole.ranks.preflight import machine

machine.share_of_memory = lambda *_: {memory}

class Large(nn.Sequential):
    def to(self, *_):  # as if the rank were killed when the model gets its memory
        while not Path({flag!r}).exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

model = Large(*(nn.Linear(2048, 2048, bias=False) for _ in range(8)))  # 8 units of 16 MiB
optimizer = torch.optim.Adam(model.parameters())
model, optimizer, _ = fd.prepare(model, optimizer)
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
        run = cluster.train(TRAIN + LARGE.format(flag=str(flag), memory=MEMORY), detach=True)
        deadline = time.monotonic() + DEADLINE
        while not all(view.advice for view in run.ranks()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        flag.touch()
        with pytest.raises(RankDiedError, match=r"is gone.*The smallest mesh that fits is mesh=.'shard': 2"):
            run.wait(DEADLINE)
        assert "mesh={'shard': 2}" in run.error
