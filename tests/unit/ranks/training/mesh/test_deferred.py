"""Tests of models that are made without memory. `tests/contract/test_mesh.py` shards such models over ranks."""

import weakref

import farandole as fd
import numpy as np
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.training.mesh.deferred import Materializer
from safetensors.torch import save_file
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 9)
        self.head.weight = self.embedding.weight


def prepared(seed, kind=Tied):
    torch.manual_seed(seed)
    with fd.deferred():
        model = kind()
    assert all(parameter.is_meta for parameter in model.parameters())
    return fd.prepare(model, mesh={"shard": -1})[0]


def test_the_values_follow_from_the_seed_and_shared_parameters_stay_shared():
    model, same, other = prepared(1), prepared(1), prepared(2)
    assert model.head.weight is model.embedding.weight
    assert model.norm.running_var.tolist() == [1.0] * 4
    for name, value in model.state_dict().items():
        torch.testing.assert_close(same.state_dict()[name], value)
    assert not torch.equal(other.head.weight, model.head.weight)
    # The embedding has the parameter first, and draws it from a normal distribution.
    assert model.embedding.weight.abs().max() > 1


def test_an_optimizer_has_the_parameters_with_memory():
    with fd.deferred():
        model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, _ = fd.prepare(model, optimizer, mesh={"shard": 1})
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight, before - 1)


def test_random_numbers_of_the_cell_stay_as_they_are():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with fd.deferred():
        model = nn.Linear(2, 1)
    fd.prepare(model, mesh={"shard": 1})
    torch.testing.assert_close(torch.rand(2), expected)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.zeros(2))


def test_a_module_that_does_not_set_its_parameters_is_named():
    with pytest.raises(UsageError, match=r"Module 'inner' does not set 'inner.weight' in reset_parameters\(\); define"):
        prepared(1, Own)


def test_the_layers_of_torchs_transformers_set_their_parameters():
    model = prepared(1, lambda: nn.TransformerEncoderLayer(8, 2))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


class Mask(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.register_buffer("mask", torch.ones(2, dtype=torch.bool))

    def reset_parameters(self):
        nn.init.zeros_(self.weight)


def test_a_mask_that_is_not_set_is_named():
    with pytest.raises(UsageError, match="Mask '' does not set 'mask' in reset_parameters"):
        prepared(1, Mask)


class Places(Mask):
    def __init__(self):
        super().__init__()
        # Such a buffer has memory in a block of fd.deferred, too.
        self.mask = torch.from_numpy(np.arange(2))


def test_a_buffer_that_has_memory_need_not_be_set():
    assert prepared(1, Places).mask.tolist() == [0, 1]


def test_values_from_a_file_need_not_be_set(tmp_path):
    save_file({"inner.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with fd.deferred():
        model = Own()
    assert fd.load_weights(model.inner, tmp_path, strict=False) == (["weight"], ["inner.weight"])
    with pytest.raises(UsageError, match="'inner.weight' has the shape"):
        fd.load_weights(Wide(), tmp_path)
    assert fd.load_weights(model, tmp_path) == ([], [])
    assert fd.prepare(model, mesh={"shard": -1})[0].inner.weight.tolist() == [1, 1]


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.zeros(3, device="meta"))


def test_a_part_is_loaded_and_the_rest_sets_itself(tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with fd.deferred():
        model = nn.ModuleDict({"own": Own(), "head": nn.Linear(2, 1)})
    fd.load_weights(model["own"].inner, tmp_path)
    model = fd.prepare(model, mesh={"shard": -1})[0]
    assert model["own"].inner.weight.tolist() == [1, 1]
    assert model["head"].weight.isfinite().all()


def test_a_gpu_draws_the_same_numbers_on_all_ranks(monkeypatch):
    # Its generator is not that of the CPU, and each rank may have used it before.
    generator = torch.Generator()
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: generator.get_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: generator.set_state(state))
    monkeypatch.setattr(rng, "uses_gpu", lambda: True)
    monkeypatch.setattr(context, "device", lambda: torch.device("cuda", 0))
    drawn = []
    for used in range(2):
        generator.manual_seed(used)
        with rng.seeded(3, gpu=True):
            drawn.append(torch.rand(2, generator=generator).tolist())
        assert generator.get_state().equal(torch.Generator().manual_seed(used).get_state())
    assert drawn[0] == drawn[1]


def test_only_the_model_keeps_the_memory_of_its_parameters():
    with fd.deferred():
        model = nn.Linear(2, 1)
    materialize = Materializer(model)
    materialize(model)
    whole = weakref.ref(model.weight)
    # As sharding does.
    model.weight = nn.Parameter(torch.zeros(1))
    assert whole() is None
