"""Tests of models that are made without memory. `tests/contract/test_mesh.py` shards such models over ranks."""

import weakref

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from farandole.ranks.training.mesh.deferred import Materializer
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
    with pytest.raises(
        UsageError, match=r"Module 'inner' does not set all of its parameters and buffers in reset_para"
    ):
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
    with pytest.raises(UsageError, match="Mask '' does not set all of its parameters and buffers"):
        prepared(1, Mask)


def test_only_the_model_keeps_the_memory_of_its_parameters():
    with fd.deferred():
        model = nn.Linear(2, 1)
    materialize = Materializer(model)
    materialize(model)
    whole = weakref.ref(model.weight)
    # As sharding does.
    model.weight = nn.Parameter(torch.zeros(1))
    assert whole() is None
