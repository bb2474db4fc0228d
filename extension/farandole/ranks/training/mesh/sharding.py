"""Shards a model and its optimizer over the ranks of a mesh, with torch's FSDP2 and tensor parallelism."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.training import parallel
from farandole.ranks.training.mesh import optimizers
from farandole.ranks.training.mesh.deferred import Materializer, broadcast_seed
from farandole.ranks.training.mesh.shape import DIMENSIONS, MeshShape
from farandole.ranks.training.mesh.tensor_plan import Plan, parallelize
from farandole.ranks.training.mesh.units import check_ties, units
from farandole.ranks.training.shard import place_in_world
from farandole.ranks.world import world


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a model is sharded; see ``fd.prepare``."""

    shape: MeshShape
    wrap: Sequence[type[nn.Module]] | None = None
    plan: Plan | None = None
    precision: torch.dtype | None = None
    recompute: bool = False
    offload: bool = False


def distribute(model: nn.Module, optimizer: Any, sharding: Sharding) -> tuple[nn.Module, Any]:
    """Shard a model and its optimizer, and return them. All ranks start with the state of rank 0.

    A model that is sharded already stays as it is, and so do an optimizer's parameters that belong to it.

    Raises:
        UsageError: the ranks have different models, or the model cannot be sharded in this way.
    """
    shape = sharding.shape
    if optimizer is not None:
        optimizers.check(optimizer, model)
    if isinstance(model, FSDPModule):
        _check_again(model, shape)
        return model, optimizer
    blocks, materialize = units(model, sharding.wrap), Materializer(model)
    check_ties(model, blocks)
    if not materialize.needed:
        model.to(context.device())
    before = dict(model.named_parameters())
    if context.size() == 1:
        materialize(model)
    else:
        _start_alike(model, optimizer)
        _shard(model, sharding, blocks, materialize)
    if optimizer is not None:
        optimizers.moved(optimizer, before, dict(model.named_parameters()))
    return model, optimizer


def _start_alike(model: nn.Module, optimizer: Any) -> None:
    parallel.check_same_model(model)
    parallel.broadcast_model(model, "torch")
    if optimizer is not None:
        parallel.broadcast_optimizer(optimizer)


def _shard(model: nn.Module, sharding: Sharding, blocks: Sequence[nn.Module], materialize: Materializer) -> None:
    shape, mesh = sharding.shape, device_mesh(sharding.shape)
    if shape.tensor > 1:
        parallelize(model, mesh["tensor"], sharding.plan, materialize)
    for block in blocks if sharding.recompute else ():
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    shard = partial(fully_shard, mesh=_sharded(mesh, shape), **_policies(sharding))
    for unit in (*blocks, model):
        # Only this unit is whole on the rank now.
        materialize(unit)
        shard(unit)
    _homes[model] = _key(shape)
    if shape.tensor > 1:
        # Ranks with the same samples need the same random numbers, for example for dropout.
        rng.seed(broadcast_seed(), shape.place()[0])


def place(model: nn.Module) -> tuple[int, int]:
    """Return which share of each batch this rank of a sharded model gets, and the number of shares."""
    home = _homes.get(model)
    return home[1].place() if home is not None else place_in_world()


def device_mesh(shape: MeshShape) -> DeviceMesh:
    """Return the mesh of this shape in the current world. All ranks must call this together."""
    key = _key(shape)
    if key not in _meshes:
        _meshes.clear()
        with world.current().connecting():
            _meshes[key] = init_device_mesh(context.device().type, shape.sizes, mesh_dim_names=DIMENSIONS)
    return _meshes[key]


_meshes: dict[tuple[int, MeshShape], DeviceMesh] = {}
"""The mesh of the current world. A cell that runs again does not connect the ranks again."""
_homes: weakref.WeakKeyDictionary[nn.Module, tuple[int, MeshShape]] = weakref.WeakKeyDictionary()
"""The world and the mesh of each sharded model."""


def _key(shape: MeshShape) -> tuple[int, MeshShape]:
    return world.current().times_left, shape


def _check_again(model: nn.Module, shape: MeshShape) -> None:
    """Raise UsageError if a sharded model belongs to another mesh or to a world that the ranks have left."""
    if _homes.get(model) != _key(shape):
        raise UsageError(
            "fd.prepare: the model is sharded over another mesh, or a cell has failed, was interrupted or lost a rank "
            f"since; create the model again before fd.prepare with the mesh {shape}, and continue with fd.checkpoint."
        )


def _sharded(mesh: DeviceMesh, shape: MeshShape) -> DeviceMesh:
    return mesh["data", "shard"] if shape.data > 1 else mesh["shard"]


def _policies(sharding: Sharding) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if sharding.precision is not None:
        found["mp_policy"] = MixedPrecisionPolicy(param_dtype=sharding.precision, reduce_dtype=torch.float32)
    if sharding.offload and context.device().type == "cuda":
        found["offload_policy"] = CPUOffloadPolicy()
    return found
