"""What ``%cluster check`` asks of a rank."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from farandole.ranks import context
from farandole.ranks.preflight import gpus, machine

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

REDUCED_BYTES = 16 * 2**20
TIMES = 5


def describe() -> dict[str, Any]:
    """Return what this rank has to work with, and its GPUs."""
    return {**machine.describe(), **gpus.describe(), "pid": os.getpid()}


def clock() -> float:
    """Return this rank's clock in seconds since the epoch."""
    return time.time()


def all_reduce() -> list[float]:
    """Sum 16 MB of float32 over the world, once to warm up and then a few times; return the seconds of each."""
    import torch

    device, reduce = _operation()
    tensor = torch.zeros(REDUCED_BYTES // 4, device=device)
    return [_timed(reduce, tensor) for _ in range(TIMES + 1)][1:]


def _timed(reduce: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> float:
    import torch

    begun = time.perf_counter()
    reduce(tensor)
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter() - begun


def _operation() -> tuple[torch.device, Callable[[torch.Tensor], object]]:
    """Return the device that a training on this world's backend uses, and the backend's sum."""
    if context.backend() == "horovod":
        import horovod.torch as hvd

        return context.device(), lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="farandole.preflight")
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.device_count() >= context.local_size()
    return context.device() if on_gpu else torch.device("cpu"), dist.all_reduce
