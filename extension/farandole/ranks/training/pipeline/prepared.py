"""Implements ``fd.prepare`` for models that ``fd.pipeline`` returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farandole.exceptions import UsageError
from farandole.ranks.training import iterable, memory
from farandole.ranks.training.mesh.shape import current
from farandole.ranks.training.pipeline.model import Pipeline
from farandole.ranks.training.shard import BatchPlace
from farandole.ranks.training.sync.modes import Sync


def prepare(
    model: Pipeline,
    optimizer: Any,
    loader: Any,
    *,
    sync: Sync,
    mesh: Mapping[str, int] | None,
    per_rank: bool,
    seed: int,
) -> tuple[Any, Any, Any]:
    """Return the model, the optimizer, and a loader that yields the same batches on all ranks; see ``fd.prepare``.

    Raises UsageError if the optimizer has other parameters, or if an argument does not suit a pipeline.
    """
    if mesh is not None:
        raise UsageError(
            "fd.prepare: the model comes from fd.pipeline, which divides it among all ranks; leave out mesh, or "
            "fd.pipeline."
        )
    if sync.name != "step":
        raise UsageError(
            f"fd.prepare: fd.sync.{sync.name} needs the whole model on each rank, and fd.pipeline has divided it; "
            "leave out sync."
        )
    model.check_home()
    own = set(map(id, model.parameters()))
    groups = optimizer.param_groups if optimizer is not None else ()
    if any(id(parameter) not in own for group in groups for parameter in group["params"]):
        raise UsageError(
            "fd.prepare: the optimizer has parameters that are not in this rank's stage; create it from "
            "model.parameters() after fd.pipeline."
        )
    current().set(whole_batches)
    memory.follow(model, optimizer)
    if loader is not None:
        loader = iterable.sharded(loader, seed=seed, per_rank=per_rank, place=whole_batches)
    return model, optimizer, loader


def whole_batches() -> BatchPlace:
    """Return the place of a rank that gets the whole of each batch."""
    return BatchPlace(share=0, shares=1, copied=True)
