"""Tests of the computed traffic of a sharded model."""

import farandole as fd
import pytest
import torch
import torch.distributed as dist
from farandole.ranks.training.mesh import sharding
from farandole.ranks.training.mesh.shape import MeshShape
from farandole.ranks.training.mesh.traffic import sent_bytes
from torch import nn


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (MeshShape(shard=4), 3 * 400 + 3 * 400),
        (MeshShape(data=4), 2 * 3 / 4 * 400),
        (MeshShape(data=2, shard=4), 3 * 400 + (3 + 1) * 400),
        (MeshShape(shard=2, tensor=2), None),
    ],
    ids=str,
)
def test_what_is_in_no_unit_is_gathered_once(shape, expected):
    assert sent_bytes(nn.Linear(10, 10, bias=False), shape) == expected


def test_frozen_parameters_have_no_gradients_to_send():
    model = nn.Linear(10, 10, bias=False).requires_grad_(False)
    assert sent_bytes(model, MeshShape(data=2, shard=4)) == 3 * 400


def test_units_are_gathered_twice_in_the_dtype_of_computations_and_gradients_are_reduced_in_float32():
    model = nn.Sequential(nn.Linear(10, 10, bias=False), nn.Linear(10, 10, bias=False))
    try:
        model, *_ = fd.prepare(model, mesh={"shard": -1}, precision=torch.bfloat16)
        assert sent_bytes(model, MeshShape(shard=4), torch.bfloat16) == 2 * (2 * 3 * 200 + 3 * 400)
    finally:
        dist.destroy_process_group()
        sharding._meshes.clear()
