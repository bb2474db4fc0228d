"""The checks that ``%cluster check`` runs on a rank."""

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
    """Return the resources of this rank's machine, its GPUs and the id of this process."""
    return {**machine.describe(), **gpus.describe(), "pid": os.getpid()}


def all_reduce() -> list[list[float]]:
    """All-reduce one float32, and then 16 MiB of them, over the world.

    Return the seconds that each repetition took, for each of both sizes. The first one is a warm-up, and left out.
    """
    import torch

    device, reduce = _operation()
    tensors = [torch.zeros(count, device=device) for count in (1, REDUCED_BYTES // 4)]
    return [[_timed(reduce, tensor) for _ in range(TIMES + 1)][1:] for tensor in tensors]


def _timed(reduce: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> float:
    import torch

    begun = time.perf_counter()
    reduce(tensor)
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
    return time.perf_counter() - begun


def _operation() -> tuple[torch.device, Callable[[torch.Tensor], object]]:
    """Return the device that training uses with this backend, and the backend's all-reduce function."""
    if context.backend() == "horovod":
        import horovod.torch as hvd

        return context.device(), lambda tensor: hvd.allreduce_(tensor, op=hvd.Sum, name="farandole.preflight")
    import torch
    import torch.distributed as dist

    on_gpu = torch.cuda.device_count() >= context.local_size()
    return context.device() if on_gpu else torch.device("cpu"), dist.all_reduce
