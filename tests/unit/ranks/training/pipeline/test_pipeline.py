"""Tests of the arguments of ``fd.pipeline``, and of a pipeline on one rank."""

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training import memory
from farandole.ranks.training.pipeline import arguments
from farandole.ranks.training.shard import BatchPlace, ShardedLoader
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MSE = nn.functional.mse_loss


@pytest.fixture
def ranks(monkeypatch):
    """Return a function that makes this process a rank of a world."""

    def become(size, backend="torch"):
        monkeypatch.setenv("FARANDOLE_SIZE", str(size))
        monkeypatch.setenv("FARANDOLE_BACKEND", backend)

    return become


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def cut(**how):
    return fd.pipeline(model(), **{"split": ["2"], "loss_fn": MSE, "microbatches": 4} | how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"split": "2"}, r"split is '2'; it must be a list of names of modules"),
        ({"split": []}, r"split is \[\]; it must be a list"),
        ({"split": [2]}, r"split is \[2\]; it must be a list"),
        ({"split": ["2", "2"]}, "split names '2' twice"),
        ({"split": ["3"]}, "the Sequential has no module '3'"),
        ({"loss_fn": None}, "loss_fn is None; it must be a function of the output and the target"),
        ({"microbatches": 0}, "microbatches is 0; it must be a whole number of at least 1"),
        ({"microbatches": True}, "microbatches is True"),
        ({"schedule": "GPip"}, "there is no schedule 'GPip'; the schedules are .* Did you mean 'GPipe'?"),
        ({"schedule": None}, "there is no schedule None"),
    ],
)
def test_a_wrong_argument_is_named(how, message):
    with pytest.raises(UsageError, match=message):
        cut(**how)


def test_the_memory_of_a_stage_is_measured(monkeypatch):
    followed = []
    monkeypatch.setattr(memory, "follow", lambda *these: followed.append(these))
    pipeline = cut()
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
    fd.prepare(pipeline, optimizer)
    assert followed == [(pipeline, optimizer)]


def test_a_model_that_cannot_be_cut_again_is_named(monkeypatch):
    with pytest.raises(UsageError, match="the model is a str; pass a"):
        fd.pipeline("model", ["2"], loss_fn=MSE)
    with pytest.raises(UsageError, match="the model is cut already"):
        fd.pipeline(cut(), ["2"], loss_fn=MSE)
    monkeypatch.setattr(arguments, "is_sharded", lambda part: True)
    with pytest.raises(UsageError, match=r"fd.prepare has wrapped or sharded this model, or fd.pipeline has cut it be"):
        cut()


def test_a_compiled_model_is_named():
    compiled = model()
    compiled._orig_mod = nn.Identity()
    with pytest.raises(UsageError, match="the model is compiled, and cannot be cut; pass the model itself"):
        fd.pipeline(compiled, ["2"], loss_fn=MSE)


@pytest.mark.parametrize(("backend", "size"), [("horovod", 4), ("horovod", 1), ("none", 2)])
def test_other_backends_have_no_pipelines(ranks, backend, size):
    ranks(size, backend)
    with pytest.raises(UsageError, match=f"a pipeline needs the backend torch, and the ranks have {backend}; use"):
        cut()


def test_an_elastic_run_has_no_pipelines(monkeypatch):
    monkeypatch.setattr("farandole.ranks.world.membership.current", lambda: type("Client", (), {"active": True}))
    with pytest.raises(UsageError, match="which a pipeline cannot follow; leave out --elastic"):
        cut()


def test_ranks_that_share_a_gpu_have_no_pipelines(ranks, monkeypatch):
    ranks(2)
    monkeypatch.setenv("FARANDOLE_LOCAL_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="the ranks of this worker share a GPU"):
        cut()


@pytest.mark.parametrize(
    ("stages", "microbatches", "schedule", "message"),
    [
        (3, 8, "1F1B", "split makes 3 stages, and there are 4 ranks, .* name 3 modules in split"),
        (8, 8, "GPipe", "split makes 8 stages, and there are 4 ranks"),
        (4, 2, "1F1B", "1F1B needs at least as many microbatches as stages, and there are 2 for 4 stages"),
        (4, 8, "Interleaved1F1B", "needs a multiple of the 4 ranks, at least 8; name 7 modules"),
        (10, 8, "Interleaved1F1B", "split makes 10 stages, and Interleaved1F1B needs a multiple of the 4 ranks"),
        (8, 9, "Interleaved1F1B", "cannot use 9 microbatches on 4 ranks; set a multiple of 4"),
    ],
)
def test_stages_that_do_not_fit_are_named(ranks, stages, microbatches, schedule, message):
    ranks(4)
    with pytest.raises(UsageError, match=message):
        arguments.check_stages(stages, microbatches, schedule)


@pytest.mark.parametrize(
    ("stages", "microbatches", "schedule"),
    [(4, 4, "1F1B"), (4, 2, "GPipe"), (8, 8, "Interleaved1F1B"), (8, 3, "Interleaved1F1B")],
)
def test_stages_fit(ranks, stages, microbatches, schedule):
    ranks(4)
    arguments.check_stages(stages, microbatches, schedule)


def test_one_rank_trains_the_whole_model():
    whole, pipeline = model(), cut()
    x, y = torch.randn(8, 2), torch.randn(8, 1)
    expected = MSE(whole(x), y)
    expected.backward()
    torch.testing.assert_close(pipeline.step(x, y), expected.detach())
    assert [name for name, _ in pipeline.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert pipeline.state_dict().keys() == whole.state_dict().keys()
    for parameter, other in zip(pipeline.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)
    torch.testing.assert_close(pipeline(x[:3]), whole(x[:3]).detach())
    assert not pipeline(x).requires_grad


def test_a_deferred_model_gets_memory():
    with fd.deferred():
        deferred = model()
    pipeline = fd.pipeline(deferred, ["2"], loss_fn=MSE, microbatches=1)
    assert pipeline.step(torch.zeros(2, 2), torch.zeros(2, 1)).isfinite()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(6, 2), torch.zeros(6, 1), "has 6 samples, which do not divide into 4 microbatches .* drop_last"),
        (torch.zeros(0, 2), torch.zeros(0, 1), "has 0 samples"),
        (torch.zeros(8, 2), torch.zeros(4, 1), r"different numbers of samples \(4, 8\)"),
        (
            (torch.zeros(8, 2), torch.zeros(8, 2)),
            torch.zeros(8, 1),
            "has 2 inputs, and the model needs 1",
        ),
        ({"x": torch.zeros(8, 2)}, torch.zeros(8, 1), "x has a dict; it must be a tensor"),
        (torch.zeros(8, 2), torch.tensor(1.0), "y has a tensor without dimensions"),
        (torch.zeros(8, 2), [1.0] * 8, "y has a list"),
    ],
)
def test_a_batch_that_does_not_fit_is_named(x, y, message):
    with pytest.raises(UsageError, match=message):
        cut().step(x, y)


def test_what_a_pipeline_cannot_return_is_named():
    with pytest.raises(UsageError, match=r"loss_fn returns a tensor of shape \[2, 1\]; it must return one number"):
        cut(loss_fn=lambda output, target: output - target).step(torch.zeros(8, 2), torch.zeros(8, 1))
    with pytest.raises(UsageError, match="loss_fn returns float; it must return one number as a tensor"):
        cut(loss_fn=lambda output, target: 1.0).step(torch.zeros(8, 2), torch.zeros(8, 1))

    class Named(nn.Module):
        def forward(self, x):
            return {"logits": x}

    named = fd.pipeline(nn.Sequential(*model(), Named()), ["2"], loss_fn=MSE, microbatches=1)
    with pytest.raises(UsageError, match="the model returns a dict, and a pipeline needs a tensor"):
        named.step(torch.zeros(8, 2), torch.zeros(8, 1))


def test_prepare_gives_each_rank_the_whole_batch(ranks):
    pipeline = cut()
    optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4)
    same, same_optimizer, loader = fd.prepare(pipeline, optimizer, loader)
    assert (same, same_optimizer) == (pipeline, optimizer)
    assert isinstance(loader, ShardedLoader)
    ranks(4)
    assert [batch.tolist() for (batch,) in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_loader_without_a_model_gives_whole_batches_after_a_pipeline():
    fd.prepare(cut())
    _, _, loader = fd.prepare(None, None, DataLoader(TensorDataset(torch.arange(4)), batch_size=4))
    assert loader._place() == BatchPlace(share=0, shares=1, copied=True)


def test_prepare_refuses_what_does_not_suit_a_pipeline():
    pipeline = cut()
    with pytest.raises(UsageError, match="leave out mesh, or fd.pipeline"):
        fd.prepare(pipeline, mesh={"shard": 1})
    with pytest.raises(UsageError, match="precision is for models that a mesh shards"):
        fd.prepare(pipeline, precision=torch.bfloat16)
    with pytest.raises(UsageError, match=r"fd.sync.local needs the whole model on each rank, and fd.pipeline"):
        fd.prepare(pipeline, torch.optim.SGD(pipeline.parameters()), sync=fd.sync.local())
    with pytest.raises(UsageError, match="the optimizer has parameters that are not in this rank's stage"):
        fd.prepare(pipeline, torch.optim.SGD(model().parameters()))


def test_a_pipeline_ends_with_its_world(ranks):
    pipeline = cut()
    ranks(4)
    for use in (lambda: pipeline.step(torch.zeros(8, 2), torch.zeros(8, 1)), lambda: fd.prepare(pipeline)):
        with pytest.raises(UsageError, match="create the model again before fd.pipeline, and continue"):
            use()
