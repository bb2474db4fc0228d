"""A run resumes from another run's checkpoint, on a local cluster with either backend."""

import pytest
from farandole import Cluster
from farandole.exceptions import RankError, RunNotFoundError, UsageError
from farandole.runs.store import RunStore

CELL = """
import torch, farandole as fd
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
model, optimizer, loader = fd.prepare(model, optimizer, torch.utils.data.DataLoader(data, 8, shuffle=True))
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 18)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=2)
state = fd.state(model, optimizer, loader, scheduler, scaler, epoch=0, step=0)
checkpoints = fd.checkpoint(state, every=4)
for epoch in range(state.epoch, 3):
    state.epoch = epoch
    for x, y in loader:
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        state.step += 1
        fd.report(step=state.step, loss=loss, scale=scaler.get_scale())
        state.commit()
        checkpoints.wait()  # steps of a millisecond: the disk would come too late
        {fault}
fd.result(checkpoints.resumed)
"""


def cell(fault="pass"):
    return CELL.replace("{fault}", fault)


def losses(run):
    """Return the mean loss of the ranks at each step. All ranks have shares of the same size."""
    return means(run, "loss")


def means(run, name):
    return run.dataframe().groupby("step")[name].mean().to_dict()


@pytest.fixture(scope="module", params=["horovod", pytest.param("torch", marks=pytest.mark.release)])
def cluster(request, tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("runs"))
    with Cluster.start(local=True, ranks=2, backend=request.param, store=store) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def broken(cluster):
    """Return a run that failed at its tenth step."""
    with pytest.raises(RankError, match="enough"):
        cluster.train(cell("if state.step == 10: raise ValueError('enough')"), name="broken")
    return cluster.store.load("broken")


def test_a_run_has_checkpoints(broken):
    assert [checkpoint.step for checkpoint in broken.checkpoints] == [4, 8]
    assert all(checkpoint.path.parent == broken.folder / "checkpoints" for checkpoint in broken.checkpoints)
    assert all(checkpoint.bytes > 0 for checkpoint in broken.checkpoints)


@pytest.mark.parametrize("key", ["", "broken"])
def test_resuming_gives_the_losses_of_an_uninterrupted_run(cluster, broken, key):
    whole = cluster.train(cell(), name="whole")
    run = cluster.train(cell(), name="broken" if not key else "again", resume=key)
    assert run.resumed_from == cluster.store.load(run.id).resumed_from == broken.id
    assert run.results == {0: 8, 1: 8}
    assert f"resumed from step 8, {broken.id}, written by 2 ranks" in run.notices
    expected = {step: loss for step, loss in losses(whole).items() if step > 8}
    assert losses(run) == pytest.approx(expected, rel=1e-6)
    # The scaler doubles the scale after every two steps. The resumed run continues with the restored scale.
    assert means(run, "scale") == {step: 2.0 ** (1 + step // 2) for step in expected}
    assert [checkpoint.step for checkpoint in run.checkpoints] == [12, 16]
    for made in (whole, run):  # without these checkpoints, the newest run that can be resumed is the failed run again
        for checkpoint in made.checkpoints:
            (checkpoint.path / "manifest.json").unlink()


def test_another_cluster_with_another_size_continues(cluster, broken):
    with Cluster.start(local=True, ranks=4, backend=cluster.backend, store=cluster.store) as other:
        run = other.train(cell(), resume=broken.id)
    assert run.results == dict.fromkeys(range(4), 8)
    early = {step: loss for step, loss in losses(broken).items() if step > 8}
    found = losses(run)
    assert sorted(found) == list(range(9, 19))
    assert {step: found[step] for step in early} == pytest.approx(early, rel=1e-4)


def test_without_a_checkpoint_to_resume_no_run_begins(cluster, broken):
    runs = len(cluster.store.list())
    with pytest.raises(RunNotFoundError, match="No run 'nope'"):
        cluster.train("pass", resume="nope")
    with pytest.raises(UsageError, match="no run with the name 'new' has a checkpoint"):
        cluster.train("pass", name="new", resume="")
    assert len(cluster.store.list()) == runs
    empty = cluster.train("pass")
    with pytest.raises(UsageError, match=f"run {empty.id} has no checkpoint to continue from"):
        cluster.train("pass", resume=empty.id)


def test_a_cell_without_checkpoints_reports_that_nothing_was_resumed(cluster, broken):
    run = cluster.train("pass", resume=broken.id)
    assert [text for text in run.notices if "did not call fd.checkpoint" in text]
