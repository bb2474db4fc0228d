"""Tests for elastic runs on a real hub, in which workers are killed and workers join and leave during the run."""

import threading
from collections import Counter

import pytest
from farandole import Cluster, Elastic
from farandole.protocol import Status
from farandole.runs.store import RunStore

from tests.cells import CONFIGURED, elastic, used_by_ranks

EPOCHS = 16


@pytest.fixture(scope="module", params=["horovod", pytest.param("torch", marks=pytest.mark.release)])
def cluster(request, hub, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    access = {"hub_url": hub.url, "token": hub.token_for(f"elastic-{request.param}"), "store": store}
    with Cluster.start(2, name="e", backend=request.param, **access) as cluster:
        yield cluster


def whole(run, epochs=EPOCHS):
    assert run.status == Status.FINISHED
    for result in run.results.values():
        assert Counter(result["seen"]) == dict.fromkeys(range(248), epochs)


def test_a_worker_that_is_killed_is_replaced(cluster, tmp_path):
    # Train slowly until the new worker has joined.
    fault = "kill(1, 20, os.getppid); time.sleep(0.3 if fd.size() == 1 else 0)"
    run = cluster.train(elastic(tmp_path, epochs=EPOCHS, fault=fault), elastic=Elastic())
    whole(run)
    assert any("rank 1 (worker e-w1) was lost" in notice for notice in run.notices)
    assert any("rank 1 joined: continuing with 2 ranks" in notice for notice in run.notices)


@pytest.mark.release
def test_a_rank_that_replaces_another_uses_the_same_hyperparameters(cluster, tmp_path):
    fault = "kill(1, 20, os.getppid); time.sleep(0.3 if fd.size() == 1 else 0)"
    code = elastic(tmp_path, epochs=EPOCHS, fault=fault, before=CONFIGURED)
    run = cluster.train(code, elastic=Elastic(), config={"lr": 0.01})
    whole(run)
    assert any("joined: continuing with 2 ranks" in notice for notice in run.notices), run.notices
    assert used_by_ranks(tmp_path) == {"0.01-8": 3}
    info = cluster.store.find(run.id)
    assert (info.config, info.overrides) == ({"lr": 0.01, "batch": 8}, {"lr": 0.01})
    assert not any("has changed nothing" in notice for notice in run.notices)


def test_workers_are_added_and_removed_while_the_run_continues(cluster, tmp_path):
    def scale_along(run):
        def once(size, workers):
            return threading.Thread(target=cluster.scale, args=[workers], name=f"at size {size}")

        pending = [(2, once(2, 3)), (3, once(3, 1))]

        def look():
            frame = run.dataframe()
            if pending and len(frame) and frame["size"].iloc[-1] == pending[0][0]:
                pending.pop(0)[1].start()

        return look

    # Train slowly until the size has changed for the last time.
    slow = elastic(tmp_path, epochs=EPOCHS, fault="time.sleep(0 if fd.size() == 1 else 0.3)")
    run = cluster.train(slow, elastic=Elastic(), watch=scale_along)
    whole(run)
    sizes = run.dataframe().query("rank == 0")["size"].astype(int).to_list()
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before] == [2, 3, 1]
    assert cluster.size == 1
    cluster.scale(2)


SHARDED = """
import time, torch, farandole as fd
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, _ = fd.prepare(model, optimizer, mesh={"shard": -1})
state = fd.state(model, optimizer, step=0, alone=0)
fd.checkpoint(state, every="1h")

@fd.elastic
def train(state):
    while state.alone < 3:  # the size has changed for the last time
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
        state.step += 1
        state.alone += fd.size() == 1
        fd.report(size=fd.size(), step=state.step)
        time.sleep(0.3)
        state.commit()

train(state)
"""


@pytest.mark.release
def test_ranks_that_share_a_model_begin_again_in_another_size(cluster):
    if cluster.backend != "torch":
        pytest.skip("meshes need torch")

    def scale_along(run):
        pending = [(2, 3), (3, 1)]

        def look():
            frame = run.dataframe()
            if pending and len(frame) and frame["size"].iloc[-1] == pending[0][0]:
                threading.Thread(target=cluster.scale, args=[pending.pop(0)[1]]).start()

        return look

    run = cluster.train(SHARDED, elastic=Elastic(), watch=scale_along)
    frame = run.dataframe().query("rank == 0").astype({"size": int, "step": int})
    sizes = frame["size"].to_list()
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before] == [2, 3, 1]
    assert frame["step"].to_list() == list(range(1, len(frame) + 1))
    assert cluster.size == 1
    assert list(run.info.warnings) == []
    cluster.scale(2)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_other_rank_continues_without_a_killed_one(cluster, tmp_path, rank):
    # This test has no time limit for the recovery, because `make bench` measures the recovery time.
    run = cluster.train(elastic(tmp_path, epochs=4, fault=f"kill({rank}, 20)"), elastic=Elastic())
    whole(run, epochs=4)
    lost = f"rank {rank} (worker e-w{rank}) was lost: killed by "
    assert any(lost in notice for notice in run.notices)
