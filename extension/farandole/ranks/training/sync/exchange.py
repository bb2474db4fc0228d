"""Starts a collective on the world's backend, or other work, that runs while the training continues.

The caller starts a collective from the main thread, on all ranks at the same step, and starts no second one of the same
name before it has waited for the first.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import torch

from farandole.ranks import context

NICENESS = 10
"""How much lower the priority of work beside the training is than that of the training."""
LOWEST = 19
GATHERS = 8
"""Collectives in which ranks without a GPU gather a tensor. In a single one, two ranks on gloo send and receive in
turns. In several at the same time, they do both at once, which takes two thirds of the time."""

T = TypeVar("T")

Wait = Callable[[], torch.Tensor]
"""Blocks until a collective has ended and returns its result. Raises the backend's error if a rank was lost."""


def start_sum(tensor: torch.Tensor, name: str) -> Wait:
    """Start adding the ``tensor`` of all ranks, element by element. It is overwritten with the sum."""
    if context.size() == 1:
        return lambda: tensor
    if context.backend() == "horovod":
        import horovod.torch as hvd

        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name=f"farandole.sync.{name}")
        return lambda: hvd.synchronize(handle)
    import torch.distributed as dist

    work = dist.all_reduce(tensor, async_op=True)
    return lambda: (work.wait(), tensor)[1]


def start_gather(tensor: torch.Tensor, name: str) -> Wait:
    """Start gathering the ``tensor`` of all ranks, each of shape (n,). The result has the shape (ranks, n)."""
    size = context.size()
    if size == 1:
        return lambda: tensor.unsqueeze(0)
    if context.backend() == "horovod":
        import horovod.torch as hvd

        handle = hvd.allgather_async(tensor.unsqueeze(0), name=f"farandole.sync.{name}")
        return lambda: hvd.synchronize(handle)
    import torch.distributed as dist

    rows = torch.empty(size, len(tensor), dtype=tensor.dtype, device=tensor.device)
    pieces = GATHERS if tensor.device.type == "cpu" else 1
    works = [
        dist.all_gather(list(into), piece, async_op=True)
        for into, piece in zip(rows.chunk(pieces, dim=1), tensor.chunk(pieces), strict=True)
    ]

    def wait() -> torch.Tensor:
        for work in works:
            work.wait()
        return rows

    return wait


def beside(work: Callable[[], T]) -> Future[T]:
    """Start work in a thread, and return the future of its result or of its error.

    The work gets only processor time that the training leaves.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            _yield_to_training()
            future.set_result(work())
        except Exception as exc:  # noqa: BLE001 - the training gets it from the future
            future.set_exception(exc)

    # The thread of an executor would keep the process from ending while it waits for the network.
    threading.Thread(target=run, name="farandole-exchange", daemon=True).start()
    return future


def _yield_to_training() -> None:
    """Lower the priority of this thread. Elsewhere than on Linux, threads have no priority of their own."""
    if sys.platform == "linux":
        lower = min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, LOWEST)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), lower)
