"""Tests of ``fd.prepare`` with a mesh of one rank, and of arguments that do not fit."""

import gc
import weakref

import farandole as fd
import pytest
import torch
import torch.distributed as dist
from farandole.exceptions import UsageError
from farandole.ranks.training import memory
from farandole.ranks.training.mesh import fit, optimizers, shape
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.utils.data import DataLoader, TensorDataset


def test_one_rank_needs_no_shards():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=4)
    same, own, shares = fd.prepare(model, optimizer, loader, mesh={"shard": -1})
    assert (same, own) == (model, optimizer)
    assert [len(x) for (x,) in shares] == [4, 2]


@pytest.fixture
def one_group():
    """End the process group of one rank that a test creates."""
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_group")
def test_precision_and_recompute_act_on_one_rank():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    how = {"mesh": {"shard": -1}, "precision": torch.bfloat16, "recompute": True}
    model, optimizer, _ = fd.prepare(model, optimizer, **how)
    loss = model(torch.ones(2, 4)).sum()
    assert loss.dtype == torch.bfloat16
    loss.backward()
    optimizer.step()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert fd.prepare(model, optimizer, **how)[:2] == (model, optimizer)
    with pytest.raises(UsageError, match="sharded over another mesh or with other options, .* create the model again"):
        fd.prepare(model, optimizer, mesh={"shard": 1})
    with pytest.raises(UsageError, match=r"a mesh shards this model; give the same mesh=\{...\} again"):
        fd.prepare(model, optimizer)


@pytest.mark.usefixtures("one_group")
def test_whole_parameters_are_freed_although_the_optimizer_has_them():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    whole, expected = list(model.parameters()), [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, _, _ = fd.prepare(model, optimizer, mesh={"shard": -1}, precision=torch.bfloat16)
    assert [parameter.untyped_storage().nbytes() for parameter in whole] == [0] * 4
    for parameter, value in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.full_tensor(), value)


@pytest.mark.usefixtures("one_group")
def test_the_memory_of_all_models_has_the_shares_of_sharded_ones_without_freed_units():
    gc.collect()  # models of other tests
    before = memory.bytes_of_all_models()
    model = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 10))
    size = memory.size_of(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, _, _ = fd.prepare(model, optimizer, mesh={"shard": -1}, precision=torch.bfloat16)
    assert memory.bytes_of_all_models() - before == size
    model(torch.ones(2, 40)).sum().backward()
    optimizer.step()
    assert memory.bytes_of_all_models() - before == 3 * size


SHARDED = {"mesh": {"shard": -1}, "precision": torch.bfloat16}
"""Options that shard a model on one rank."""


@pytest.mark.usefixtures("one_group")
@pytest.mark.parametrize("grad", [False, True])
def test_a_cell_runs_again_after_an_evaluation(grad):
    # A model without units, whose parameters all stay gathered after a forward pass.
    model = nn.Linear(4, 1)
    model, optimizer, _ = fd.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), **SHARDED)
    with torch.set_grad_enabled(grad):
        model(torch.ones(2, 4))
    with pytest.raises(UsageError, match=r"a mesh shards this model; give the same mesh=\{...\} again"):
        fd.prepare(model, optimizer)
    assert fd.prepare(model, optimizer, **SHARDED)[:2] == (model, optimizer)


@pytest.mark.usefixtures("one_group")
def test_a_new_model_gets_new_groups_after_the_cell_has_destroyed_them():
    first, _, _ = fd.prepare(nn.Linear(4, 1), **SHARDED)
    dist.destroy_process_group()
    second, _, _ = fd.prepare(nn.Linear(4, 1), **SHARDED)
    second(torch.ones(2, 4)).sum().backward()
    with pytest.raises(UsageError, match="lost a rank or destroyed the process groups since; create the model again"):
        fd.prepare(first, **SHARDED)


@pytest.mark.usefixtures("one_group")
def test_the_memory_of_an_earlier_model_is_freed():
    model, _, _ = fd.prepare(nn.Linear(4, 1), **SHARDED)
    earlier = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert earlier() is not None
        fd.prepare(nn.Linear(4, 1), **SHARDED)
        assert earlier() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("one_group")
def test_an_optimizer_of_several_meshes_loops_over_single_tensors():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("shard", "tensor"))
    one, *two = (nn.Parameter(distribute_tensor(torch.ones(2), mesh[name])) for name in ("shard", "shard", "tensor"))
    optimizer = torch.optim.SGD([{"params": [one]}, {"params": two}], lr=0.1)
    optimizers.allow_several_meshes(optimizer)
    assert [group["foreach"] for group in optimizer.param_groups] == [None, False]


class Counted(nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def test_recompute_can_be_set_and_undone_on_one_rank():
    model = nn.Sequential(Counted(4, 4), Counted(4, 1))
    for wanted, calls in ((True, 2), (True, 4), (False, 5)):
        fd.prepare(model, mesh={"shard": 1}, recompute=wanted)
        model(torch.ones(2, 4)).sum().backward()
        assert model[0].calls == calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16"}, "precision is 'bf16'; it must be a dtype of floating-point numbers, such as torch.bf"),
        ({"precision": torch.int64}, "precision is torch.int64; it must be a dtype of floating-point numbers"),
        ({"sync": "compressed"}, "fd.sync.compressed needs the whole model on each rank; leave out sync or the mesh"),
        ({"wrap": [nn.Conv2d]}, "wrap names Conv2d"),
    ],
)
def test_arguments_that_do_not_fit_are_named(options, message):
    options = {**options, "sync": fd.sync.compressed()} if "sync" in options else options
    with pytest.raises(UsageError, match=message):
        fd.prepare(nn.Linear(2, 2), mesh={"shard": 1}, **options)


def test_an_option_of_meshes_needs_a_mesh():
    with pytest.raises(UsageError, match="wrap is for models that a mesh shards; give mesh="):
        fd.prepare(nn.Linear(2, 2), wrap=[nn.Linear])


def test_a_model_without_memory_needs_a_mesh():
    with fd.deferred():
        model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match=r"was made in a block of fd.deferred and has no memory; give mesh="):
        fd.prepare(model)


class Wrapper(nn.Module):
    """A stand-in for the module that torch.compile returns."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model


def test_a_compiled_model_is_named():
    with pytest.raises(UsageError, match=r"call torch.compile\(model\) after fd.prepare"):
        fd.prepare(Wrapper(nn.Linear(2, 2)), mesh={"shard": 1})


def test_an_optimizer_of_another_model_is_named():
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters())
    with pytest.raises(UsageError, match="the optimizer has parameters that are not the model's"):
        fd.prepare(nn.Linear(2, 2), optimizer, mesh={"shard": 1})


@pytest.mark.parametrize("drop_last", [False, True])
def test_an_evaluation_with_too_few_samples_for_the_mesh_is_named(monkeypatch, drop_last):
    # The last batch has one sample, and the ranks along `shard` need one each.
    monkeypatch.setenv("FARANDOLE_SIZE", "2")
    monkeypatch.setenv("FARANDOLE_BACKEND", "torch")
    shape.current().set(shape.MeshShape(shard=2).place)
    loader = DataLoader(TensorDataset(torch.ones(5, 2)), batch_size=4, drop_last=drop_last)
    if drop_last:
        assert len(fd.prepare(None, None, loader)[2]) == 1
        return
    with pytest.raises(UsageError, match="a batch of the loader has 1 sample for 2 ranks of the mesh, and all of"):
        fd.prepare(None, None, loader)
    with pytest.raises(UsageError, match="a batch of the loader has 1 sample for 2 ranks of the mesh"):
        fd.prepare(None, None, loader, mesh={"shard": 2})


@pytest.mark.usefixtures("one_group")
@pytest.mark.parametrize(("capacity", "calls"), [(2**40, 0), (2**10, 1)])
def test_freed_memory_is_returned_only_if_the_whole_model_does_not_fit(monkeypatch, capacity, calls):
    returned = []
    monkeypatch.setattr(fit, "rank_memory", lambda: capacity)
    monkeypatch.setattr(memory, "return_freed_memory", lambda: returned.append(True))
    fd.prepare(nn.Linear(4, 1), **SHARDED)
    assert len(returned) == calls
