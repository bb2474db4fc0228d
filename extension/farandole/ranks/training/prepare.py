"""``fd.prepare``: makes a training cell run on any number of ranks, with either backend.

Importing this module does not import torch. When `prepare` is called, it imports the modules that need
torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training.sync import modes
from farandole.ranks.training.sync.modes import Sync

if TYPE_CHECKING:
    import torch

BATCH_SIZES = ("global", "per_rank")


def prepare(
    model: Any = None,
    optimizer: Any = None,
    loader: Any = None,
    *,
    batch_size: str = "global",
    seed: int = 0,
    find_unused_parameters: bool = False,
    sync: Sync | str = "step",
    mesh: Mapping[str, int] | None = None,
    wrap: Sequence[type] | None = None,
    plan: Mapping[str, Any] | None = None,
    precision: torch.dtype | None = None,
    recompute: bool = False,
    offload: bool = False,
) -> tuple[Any, Any, Any]:
    """Return the model, optimizer and loader, prepared for this rank. Each may be None.

    - The model is moved to :func:`farandole.device`. All ranks start with rank 0's parameters, buffers and optimizer
      state.
    - Each backward pass averages the gradients over all ranks, unless ``sync`` selects another mode. The loss must be a
      mean over the batch. Gradients are weighted by the size of each rank's share, so that a step has the same effect
      as a step on the whole batch.
    - The loader yields this rank's share of each batch, on the rank's device. If it shuffles, each epoch has a new
      order, which is the same on all ranks.
    - Without an optimizer, the loader is for evaluation. Each sample is then on exactly one rank, and some ranks may
      get one batch fewer than others. Without a model, too, it follows the mesh of the model that was prepared last:
      ranks along ``"tensor"`` get the same samples, and those along ``"shard"`` the same number of batches. After a
      pipeline, all ranks get the whole batches.
    - With a model from :func:`farandole.pipeline`, the loader yields the whole batches on all ranks. Model and
      optimizer stay as they are.

    Args:
        model (torch.nn.Module, optional): the model.
        optimizer (torch.optim.Optimizer, optional): the optimizer for this model's parameters.
        loader (torch.utils.data.DataLoader, optional): a loader with batches. If its dataset is an IterableDataset,
            each rank reads the whole stream, which must be the same on all ranks, and keeps its share of each batch. To
            resume in the middle of an epoch, each rank reads the stream again and skips the samples that were used.
        batch_size (str): with ``"global"``, the loader's batch size is the number of samples on all ranks together, so
            that training gives the same result on any number of ranks. With ``"per_rank"``, it is the number of samples
            on each rank, as in the examples of Horovod and torch, so that the batch grows with the world.
        seed (int): seed for shuffling.
        find_unused_parameters (bool): as in DistributedDataParallel; set it if a step does not use some parameters.
            Ignored with Horovod and with a mesh.
        sync (str or Sync): how ranks keep their models in step. ``"step"`` averages the gradients of each step. For
            slow networks, :mod:`farandole.sync` has modes that send less or wait less.
        mesh (dict, optional): the number of ranks in each dimension, for a model that does not fit on one rank. Ranks
            along ``"shard"`` share parameters, gradients and optimizer state, those along ``"tensor"`` share the
            computation of each layer, and those along ``"data"`` have copies. One dimension may be -1. Needs torch.
        wrap (list, optional): with a mesh, the classes of the modules whose parameters are gathered together, e.g.
            ``[Block]``. By default, the members of ``nn.ModuleList`` and ``nn.Sequential``.
        plan (dict, optional): with a mesh, the style of each module along ``"tensor"``, as for torch's
            ``parallelize_module``. Without it, the linear layers of torch's transformer layers are split, and those
            that a model of Hugging Face names in its own plan.
        precision (torch.dtype, optional): with a mesh, the dtype of computations, e.g. ``torch.bfloat16``. Parameters
            keep theirs.
        recompute (bool): with a mesh, whether the activations of each wrapped module are computed again in the backward
            pass.
        offload (bool): with a mesh, whether parameters and optimizer state are in the memory of the CPU instead of the
            GPU.

    Returns:
        tuple: (model, optimizer, loader).

    Raises:
        UsageError: an argument is wrong, the loader cannot be sharded, or the backend does not support the model.
    """
    from farandole.ranks.training import arguments, iterable, memory, parallel
    from farandole.ranks.training.mesh import fit, shape
    from farandole.ranks.training.pipeline import prepared as pipelines
    from farandole.ranks.training.pipeline.model import Pipeline
    from farandole.ranks.training.shard import place_in_world

    arguments.check_targets(sys._getframe(1), model, optimizer, loader)
    arguments.check_order(model=model, optimizer=optimizer, loader=loader)
    mode = modes.parsed(sync)
    if batch_size not in BATCH_SIZES:
        raise UsageError(f"fd.prepare: batch_size is {batch_size!r}; it must be 'global' or 'per_rank'.")
    if optimizer is not None and model is None:
        raise UsageError("fd.prepare: an optimizer needs its model; call fd.prepare(model, optimizer, loader).")
    given = {"wrap": wrap, "plan": plan, "precision": precision, "recompute": recompute, "offload": offload}
    if mesh is None and (alone := [name for name, value in given.items() if value]):
        raise UsageError(f"fd.prepare: {alone[0]} is for models that a mesh shards; give mesh={{...}}, too.")
    if isinstance(model, Pipeline):
        return pipelines.prepare(
            model, optimizer, loader, sync=mode, mesh=mesh, per_rank=batch_size == "per_rank", seed=seed
        )
    if mesh is not None:
        from farandole.ranks.training.mesh import prepared

        return prepared.prepare(
            model,
            optimizer,
            loader,
            mesh=mesh,
            sync=mode,
            per_rank=batch_size == "per_rank",
            seed=seed,
            **given,
        )
    arguments.check_whole(model)
    weight = None
    if model is not None:
        fit.announcer().prepare(model, optimizer, shape.MeshShape(data=context.size()))
        model, optimizer = parallel.distribute(
            model, optimizer, find_unused_parameters=find_unused_parameters, sync=mode
        )
    if optimizer is not None:
        weight = parallel.GradientWeight(model)
        shape.current().set(place_in_world)
        memory.follow(model, optimizer)
    if loader is not None:
        place = shape.current().place if model is None else place_in_world
        loader = iterable.sharded(loader, seed=seed, per_rank=batch_size == "per_rank", weight=weight, place=place)
    return model, optimizer, loader
