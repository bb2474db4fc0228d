"""``fd.prepare`` with a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from farandole.exceptions import UsageError
from farandole.ranks.training import iterable
from farandole.ranks.training.mesh.shape import parsed
from farandole.ranks.training.mesh.sharding import Sharding, distribute
from farandole.ranks.training.mesh.weight import OutputWeight
from farandole.ranks.training.sync.modes import Sync
from farandole.suggestions import did_you_mean

OPTIONS = tuple(field.name for field in fields(Sharding) if field.name != "shape")


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
    for name in how:
        if name not in OPTIONS:
            raise UsageError(f"fd.prepare has no argument {name!r}.{did_you_mean(name, OPTIONS)}")
    if sync.name != "step":
        raise UsageError(
            f"fd.prepare: fd.sync.{sync.name} needs the whole model on each rank; leave out sync or the mesh."
        )
    shape, weight = parsed(mesh), None
    if model is not None:
        model, optimizer = distribute(model, optimizer, Sharding(shape=shape, **how))
        weight = OutputWeight(model) if optimizer is not None else None
    if loader is not None:
        loader = iterable.sharded(loader, seed=seed, per_rank=per_rank, weight=weight, place=shape.place)
    return model, optimizer, loader
