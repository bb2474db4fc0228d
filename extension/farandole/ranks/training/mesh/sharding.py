"""Shards a model and its optimizer over the ranks of a mesh, with torch's FSDP2 and tensor parallelism."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel

from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.training import parallel
from farandole.ranks.training.mesh import optimizers
from farandole.ranks.training.mesh.deferred import Materializer, broadcast_seed
from farandole.ranks.training.mesh.recompute import recompute
from farandole.ranks.training.mesh.shape import DIMENSIONS, MeshShape
from farandole.ranks.training.mesh.tensor_plan import Plan, styles
from farandole.ranks.training.mesh.units import check_parameters, check_ties, units
from farandole.ranks.training.shard import BatchPlace, place_in_world
from farandole.ranks.world import membership, process_group, world


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How a model is sharded; see ``fd.prepare``."""

    shape: MeshShape
    wrap: Sequence[type[nn.Module]] | None = None
    plan: Plan | None = None
    precision: torch.dtype | None = None
    recompute: bool = False
    offload: bool = False


@dataclass(frozen=True, kw_only=True)
class _Home:
    """The world of a sharded model, and how it is sharded."""

    world: int
    shape: MeshShape
    how: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class _Mesh:
    """A mesh and its groups. A group of another world may have the same name, by which the mesh looks it up."""

    mesh: DeviceMesh
    groups: list[Any]

    @property
    def exists(self) -> bool:
        """Whether none of the groups has been destroyed."""
        return all(map(process_group.is_alive, self.groups))


def distribute(model: nn.Module, optimizer: Any, sharding: Sharding) -> tuple[nn.Module, Any]:
    """Shard a model and its optimizer, and return them. All ranks start with the state of rank 0.

    A model that is sharded already stays as it is, and so do an optimizer's parameters that belong to it. On one rank,
    a model is only sharded if an option needs that.

    Raises:
        UsageError: the ranks have different models, or the model cannot be sharded in this way.
    """
    if isinstance(model, FSDPModule):
        # After a forward pass without a backward pass, what is in no unit is still gathered.
        model.reshard()
    if optimizer is not None:
        optimizers.check(optimizer, model)
    if isinstance(model, FSDPModule):
        _check_again(model, sharding)
        if optimizer is not None:
            optimizers.allow_several_meshes(optimizer)
        return model, optimizer
    _refuse_wrappers(model)
    blocks = units(model, sharding.wrap)
    check_parameters(model, blocks)
    check_ties(model, blocks)
    before = dict(model.named_parameters())
    if context.size() > 1:
        parallel.check_same_model(model)
        if optimizer is not None:
            parallel.broadcast_optimizer(optimizer)
    materialize = Materializer(model)
    recompute(blocks, wanted=sharding.recompute)
    # An elastic run on one rank may continue with more, and then begins again from its checkpoints, as on any mesh.
    if context.size() == 1 and not _policies(sharding) and not membership.current().active:
        materialize(model)
    else:
        _shard(model, sharding, blocks, materialize)
    materialize.load(model)
    if optimizer is not None:
        optimizers.moved(optimizer, before, dict(model.named_parameters()))
    return model, optimizer


def _refuse_wrappers(model: nn.Module) -> None:
    if isinstance(model, DistributedDataParallel):
        raise UsageError(
            "fd.prepare: each rank has the whole model, because it was prepared without a mesh or wrapped in "
            "DistributedDataParallel; create the model again, and pass the model itself."
        )
    if hasattr(model, "_orig_mod"):
        raise UsageError(
            "fd.prepare: the model is compiled, and a mesh would change it after that; call torch.compile(model) after "
            "fd.prepare."
        )


def _shard(model: nn.Module, sharding: Sharding, blocks: Sequence[nn.Module], materialize: Materializer) -> None:
    shape, mesh = sharding.shape, device_mesh(sharding.shape)
    split = styles(model, sharding.plan, shape.tensor) if shape.tensor > 1 else {}
    shard = partial(fully_shard, mesh=_sharded(mesh, shape), **_policies(sharding))
    for unit in (*blocks, model):
        # Only this unit is whole on the rank's device now.
        materialize(unit)
        whole = [parameter for parameter in unit.parameters() if not isinstance(parameter, DTensor)]
        for module in unit.modules():
            if style := split.pop(module, None):
                parallelize_module(module, mesh["tensor"], style, src_data_rank=None)
        shard(unit)
        for parameter in whole:
            # The optimizer still has it, and would keep its memory.
            parameter.data = parameter.new_empty(0)
    _homes[model] = _home(sharding), _meshes[shape]
    _refuse_use_later(model)
    if shape.tensor > 1:
        # Ranks with the same samples need the same random numbers, for example for dropout.
        rng.seed(broadcast_seed(), shape.place().share)


def _refuse_use_later(model: nn.Module) -> None:
    """Make forward passes raise UsageError after the ranks have left the current world, and with it their shares."""
    home = world.current()
    number = home.times_left

    def check(*_: Any) -> None:
        if home.times_left != number:
            raise UsageError(
                "The ranks no longer share this model, because a cell has failed, was interrupted or lost a rank; "
                "create the model again before fd.prepare, and continue with fd.checkpoint."
            )

    # Before torch's own hook, which gathers parameters.
    model.register_forward_pre_hook(check, prepend=True)


def place(model: nn.Module) -> BatchPlace:
    """Return the place of this rank of a model, which a mesh may shard."""
    home, _ = _homes.get(model, (None, None))
    return home.shape.place() if home is not None else place_in_world()


def device_mesh(shape: MeshShape) -> DeviceMesh:
    """Return the mesh of this shape in the current world. All ranks must call this together."""
    device = context.device()
    if device.type == "cuda":
        # FSDP uses the current device. If ranks share GPUs, it may be another one.
        torch.cuda.set_device(device)
    for earlier in [shape for shape, found in _meshes.items() if not found.exists]:
        del _meshes[earlier]
    if shape not in _meshes:
        with world.current().connecting():
            if not dist.is_initialized():
                _init_group_of_one()
            mesh = init_device_mesh(device.type, shape.sizes, mesh_dim_names=DIMENSIONS)
            _meshes[shape] = _Mesh(mesh=mesh, groups=mesh.get_all_groups())
    return _meshes[shape].mesh


def _init_group_of_one() -> None:
    """Create the process group of a single rank that has none, because it has no cluster or the backend ``none``."""
    backend = "cpu:gloo,cuda:nccl" if context.device().type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]  # torch exports it only implicitly
    dist.init_process_group(backend, store=store, rank=0, world_size=1)


_meshes: dict[MeshShape, _Mesh] = {}
"""The meshes of the current world. A cell that runs again does not connect the ranks again."""
_homes: weakref.WeakKeyDictionary[nn.Module, tuple[_Home, _Mesh]] = weakref.WeakKeyDictionary()
"""The world of each sharded model, how it is sharded, and its mesh."""


def _home(sharding: Sharding) -> _Home:
    how = sharding.precision, sharding.recompute, sharding.offload
    return _Home(world=world.current().times_left, shape=sharding.shape, how=how)


def _check_again(model: nn.Module, sharding: Sharding) -> None:
    """Raise UsageError if a sharded model is used with other options, or if its ranks are no longer connected."""
    home, mesh = _homes.get(model, (None, None))
    if home != _home(sharding) or mesh is None or not mesh.exists:
        raise UsageError(
            "fd.prepare: the model is sharded over another mesh or with other options, or a cell has failed, was "
            "interrupted, lost a rank or destroyed the process groups since; create the model again before fd.prepare "
            f"with the mesh {sharding.shape}, and continue with fd.checkpoint."
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
