"""``fd.prepare`` with a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset

from farandole.exceptions import UsageError
from farandole.ranks.training import iterable, memory
from farandole.ranks.training.mesh import fit
from farandole.ranks.training.mesh.shape import parsed
from farandole.ranks.training.mesh.sharding import Sharding, distribute
from farandole.ranks.training.mesh.traffic import sent_bytes
from farandole.ranks.training.mesh.weight import OutputWeight
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
    precision = how["precision"]
    if precision is not None and not isinstance(precision, torch.dtype):
        raise UsageError(f"fd.prepare: precision is {precision!r}; it must be a dtype, such as torch.bfloat16.")
    if sync.name != "step":
        raise UsageError(
            f"fd.prepare: fd.sync.{sync.name} needs the whole model on each rank; leave out sync or the mesh."
        )
    shape, weight = parsed(mesh), None
    if model is not None:
        if not how["offload"]:
            fit.announce(model, optimizer, shape, how["wrap"])
        memory.return_freed_memory()
        model, optimizer = distribute(model, optimizer, Sharding(shape=shape, **how))
        weight = OutputWeight(model) if optimizer is not None else None
        memory.follow(model, optimizer, sent_bytes(model, shape, precision))
    if loader is not None:
        if weight is None:
            _refuse_uneven_evaluation(loader, shape.place()[1])
        loader = iterable.sharded(loader, seed=seed, per_rank=per_rank, weight=weight, place=shape.place)
    return model, optimizer, loader


def _refuse_uneven_evaluation(loader: Any, shares: int) -> None:
    """Raise UsageError if some ranks would get one batch fewer. Each forward pass is a collective of all ranks."""
    size = getattr(loader, "batch_size", None)
    if not size or getattr(loader, "drop_last", False) or isinstance(loader.dataset, IterableDataset):
        return
    if 0 < (last := len(loader.dataset) % size) < shares:
        raise UsageError(
            f"fd.prepare: the last batch has {last} samples for {shares} ranks of the mesh, and all of them need one; "
            "choose another batch_size, or drop_last=True."
        )
