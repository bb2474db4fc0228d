"""Compresses gradients on their way between the ranks, with what each backend has for this."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from farandole.exceptions import UsageError
from farandole.ranks.training.sync.modes import Compressed, Sync

ONE_BUCKET_MB = 100_000
"""With several buckets, the collectives of PowerSGD overlap, and Gloo aborts the process."""


def wrapper_options(model: nn.Module, sync: Sync) -> dict[str, Any]:
    """Return the options of DistributedDataParallel that this mode needs.

    Raises:
        UsageError: the mode does not support this model.
    """
    if not _is_power_sgd(sync):
        return {}
    types = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters() if parameter.requires_grad}
    if len(types) > 1:  # each type has a bucket of its own
        raise UsageError(
            f'fd.sync.compressed("powersgd") needs trained parameters of one type, and the model has '
            f'{" and ".join(sorted(types))}; use fd.sync.compressed("fp16").'
        )
    return {"bucket_cap_mb": ONE_BUCKET_MB}


def register(model: DistributedDataParallel, sync: Sync) -> None:
    """Compress the gradients of ``model``."""
    if not isinstance(sync, Compressed):
        return
    if sync.method == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return
    # The error of a step is added to the next gradient, from the first step on.
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=sync.rank, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def horovod_compressor(sync: Sync) -> Any:
    """Return the class of ``hvd.Compression`` for this mode.

    Raises:
        UsageError: Horovod does not have this mode.
    """
    import horovod.torch as hvd

    if _is_power_sgd(sync):
        raise UsageError(
            'fd.sync.compressed("powersgd") needs the torch backend: %%distributed_train --backend torch; '
            'fd.sync.compressed("fp16") and fd.sync.local(...) work with Horovod.'
        )
    return hvd.Compression.fp16 if isinstance(sync, Compressed) else hvd.Compression.none


def _is_power_sgd(sync: Sync) -> bool:
    return isinstance(sync, Compressed) and sync.method == "powersgd"
