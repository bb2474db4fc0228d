"""Tests of ``fd.prepare`` with a mesh of one rank, and of arguments that do not fit."""

import farandole as fd
import pytest
import torch
from farandole.exceptions import UsageError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def test_one_rank_needs_no_shards():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(6, 4)), batch_size=4)
    same, own, shares = fd.prepare(model, optimizer, loader, mesh={"shard": -1})
    assert (same, own) == (model, optimizer)
    assert [len(x) for (x,) in shares] == [4, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16"}, "precision is 'bf16'; it must be a dtype, such as torch.bfloat16"),
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
