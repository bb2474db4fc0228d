"""``fd.prepare``: makes one training cell run on one rank or many, on either backend.

This module does not import torch; `shard` and `parallel` do.
"""

from __future__ import annotations

from typing import Any

from farandole.exceptions import UsageError

BATCH_SIZES = ("global", "per_rank")


def prepare(
    model: Any = None,
    optimizer: Any = None,
    loader: Any = None,
    *,
    batch_size: str = "global",
    seed: int = 0,
    find_unused_parameters: bool = False,
) -> tuple[Any, Any, Any]:
    """Return model, optimizer and loader prepared for this rank; each may be None.

    - The model moves to :func:`farandole.device` and starts with rank 0's parameters, buffers and optimizer state.
    - Each backward pass averages the gradients over all ranks. The loss has to be a mean over the batch: gradients are
      weighted by the size of each rank's share, so that a step equals the step for the whole batch.
    - The loader yields this rank's share of each batch, on the rank's device. It shuffles again each epoch, in the same
      order on all ranks.
    - Without an optimizer, the loader is for evaluation: each sample is on exactly one rank, and a rank may get one
      batch fewer than others.

    Args:
        model (torch.nn.Module, optional): the model.
        optimizer (torch.optim.Optimizer, optional): the optimizer of this model's parameters.
        loader (torch.utils.data.DataLoader, optional): a loader over a map-style dataset, with batches.
        batch_size (str): with ``"global"`` the loader's batch size counts the samples of all ranks together, so
            training gives the same result on any number of ranks. With ``"per_rank"`` it counts the samples of each
            rank, as in the examples of Horovod and torch, and the batch grows with the world.
        seed (int): seed of the shuffling.
        find_unused_parameters (bool): as in DistributedDataParallel; set it if a step does not use some parameters.
            Ignored with Horovod.

    Returns:
        tuple: (model, optimizer, loader).

    Raises:
        UsageError: an argument is wrong, the loader cannot be sharded, or the backend does not support the model.
    """
    if batch_size not in BATCH_SIZES:
        raise UsageError(f"fd.prepare: batch_size is {batch_size!r}; it must be 'global' or 'per_rank'.")
    if optimizer is not None and model is None:
        raise UsageError("fd.prepare: an optimizer needs its model; call fd.prepare(model, optimizer, loader).")
    from farandole.ranks.training import parallel, shard

    weight = None
    if model is not None:
        model, optimizer = parallel.distribute(model, optimizer, find_unused_parameters=find_unused_parameters)
    if optimizer is not None:
        weight = parallel.GradientWeight(model)
    if loader is not None:
        loader = shard.ShardedLoader(loader, seed=seed, per_rank=batch_size == "per_rank", weight=weight)
    return model, optimizer, loader
