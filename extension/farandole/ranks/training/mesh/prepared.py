"""``fd.prepare`` with a mesh."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training import iterable, memory
from farandole.ranks.training.mesh import fit
from farandole.ranks.training.mesh.joining import join_world, together
from farandole.ranks.training.mesh.shape import current, parsed
from farandole.ranks.training.mesh.sharding import Sharding, distribute
from farandole.ranks.training.mesh.traffic import sent_bytes
from farandole.ranks.training.mesh.weight import output_weight
from farandole.ranks.training.sync.modes import Sync


def prepare(
    model: Any,
    optimizer: Any,
    loader: Any,
    *,
    mesh: Mapping[str, int],
    sync: Sync,
    per_rank: bool,
    seed: int,
    **how: Any,
) -> tuple[Any, Any, Any]:
    """Shard a model and its optimizer over a mesh, and give each rank its shares of the batches; see ``fd.prepare``.

    Raises:
        UsageError: the mesh, another argument or the model is not suitable.
    """
    _check(sync, how["precision"])
    if context.outside():
        join_world()
    shape, weight = parsed(mesh), None
    if model is not None:
        # The objects of FSDP form reference cycles, so an earlier model of this cell still has its memory.
        gc.collect()
        # On CPUs, `offload` has no effect.
        if not (how["offload"] and context.device().type == "cuda"):
            fit.announcer().prepare(model, optimizer, shape, how["wrap"])
        if not fit.fits_whole(model, optimizer):
            memory.return_freed_memory()
        model, optimizer = together(partial(distribute, model, optimizer, Sharding(shape=shape, **how)))
        weight = output_weight(model) if optimizer is not None else None
        current().set(shape.place)
        memory.follow(model, optimizer, sent_bytes(model, shape, how["precision"]))
    if loader is not None:
        loader = iterable.sharded(loader, seed=seed, per_rank=per_rank, weight=weight, place=shape.place)
    return model, optimizer, loader


def _check(sync: Sync, precision: Any) -> None:
    if precision is not None and not (isinstance(precision, torch.dtype) and precision.is_floating_point):
        raise UsageError(
            f"fd.prepare: precision is {precision!r}; it must be a dtype of floating-point numbers, such as "
            "torch.bfloat16."
        )
    if sync.name != "step":
        raise UsageError(
            f"fd.prepare: fd.sync.{sync.name} needs the whole model on each rank; leave out sync or the mesh."
        )
