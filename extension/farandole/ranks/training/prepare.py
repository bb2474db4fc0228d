"""``fd.prepare``: one training cell for one rank or many, on either backend.

Kept free of torch at import; the parts that need it are in `shard` and `parallel`.
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
    """Return model, optimizer and loader ready for this rank's part of the work; each may be None.

    The model goes to ``fd.device()`` and starts with rank 0's parameters, buffers and optimizer state. The loader
    gives this rank's share of each batch, on that device, newly shuffled each epoch and alike on all ranks. With
    ``batch_size="global"`` the loader's batch size is that of all ranks together, so one, two and four ranks train
    alike; ``"per_rank"`` is the convention of Horovod's and torch's own examples and grows the batch with the world.

    The loss has to be a mean over the batch: shares of different sizes are then weighted so that the step is that of
    the whole batch. Without an optimizer the loader is for evaluation: each sample comes on exactly one rank, and a
    rank may get one batch fewer. ``find_unused_parameters`` is for torch, where a step leaves some parameters unused.

    Raises: UsageError when the loader cannot be shared out, or the backend cannot take the model.
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
