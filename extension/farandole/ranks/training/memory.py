"""Measures how much memory a prepared model takes on this rank. The usage records of a run contain the figures.

- Parameters, gradients and optimizer state are the bytes of this rank's tensors, after a step of the optimizer.
- Activations are the peak since ``fd.prepare`` of what is used beside these tensors: activations, gathered parameters
  and temporary memory. On GPUs, it is the peak of torch's allocator. On CPUs, it is the growth of the process, so that
  small models drown in what torch needs when it is used for the first time.
"""

from __future__ import annotations

import ctypes
import gc
import re
import time
import weakref
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from farandole.ranks import context
from farandole.ranks.metrics import reporter, usage

SECONDS = 1.0
"""The least time between two measurements, in seconds. Usage records are as frequent."""
PROCESS = Path("/proc/self")
MMAP_THRESHOLD, MMAP_BYTES = -3, 2**20
"""The parameter of glibc's ``mallopt`` for the size from which blocks are mapped on their own, and its value here."""

_hooks: weakref.WeakKeyDictionary[Optimizer, RemovableHandle] = weakref.WeakKeyDictionary()


class ModelMemory:
    """Measures the memory of a model after each step of its optimizer."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, sent: int | None) -> None:
        self._model = model
        self._sent = sent
        self._due: float | None = None
        self._peak = Peak(context.device())
        self._beside = self._peak.begin() - _on(context.device(), tensors(model, optimizer))

    def end_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Measure the memory, unless the last measurement is less than `SECONDS` old."""
        now, first = time.monotonic(), self._due is None
        if self._due is not None and now < self._due:
            return
        self._due = now + SECONDS
        usage.model_memory().update(self._figures(optimizer))
        if first:  # a short run may end before the next record
            reporter.current().put(partial(usage.sample, context.rank()))

    def _figures(self, optimizer: Optimizer) -> dict[str, int | None]:
        found, peak = tensors(self._model, optimizer), self._peak.read()
        sizes: dict[str, int | None] = {f"{name}_bytes": size_of(these) for name, these in found.items()}
        rest = None if peak is None else max(0, peak - self._beside - _on(context.device(), found))
        return {**sizes, "activations_bytes": rest, "step_sent_bytes": self._sent}


class Peak:
    """The largest memory of this process on a device since `begin`, in bytes."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._known = True

    def begin(self) -> int:
        """Forget earlier peaks, and return the memory that is used now."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return torch.cuda.memory_allocated(self._device)
        resident = resident_bytes()
        try:
            # Linux, Documentation/filesystems/proc.rst: 5 resets the peak of the resident memory.
            (PROCESS / "clear_refs").write_text("5")
        except OSError:
            self._known = False
        return resident

    def read(self) -> int | None:
        """Return the peak, or None if the kernel does not know it."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return _status("VmHWM") if self._known else None


def follow(model: nn.Module, optimizer: Any, sent: int | None = None) -> None:
    """Measure the memory of a model from now on, instead of earlier ones.

    ``sent`` is how many bytes the rank sends in a step, if known.
    """
    # Some libraries have optimizers of other types, which have no hooks.
    if not reporter.current().run or not isinstance(optimizer, Optimizer):
        return
    for earlier in _hooks.values():
        earlier.remove()
    _hooks.clear()
    _hooks[optimizer] = optimizer.register_step_post_hook(ModelMemory(model, optimizer, sent).end_step)


def return_freed_memory() -> None:
    """Let the C library return large blocks of the CPU's memory to the kernel when they are freed.

    Units are gathered and freed all the time. By default, glibc keeps blocks of up to 32 MiB of which some were freed,
    and then a rank of a mesh needs more memory than the whole model. New blocks cost page faults, which may take a
    quarter of the time of a training. Source: mallopt(3), ``M_MMAP_THRESHOLD``.
    """
    if context.device().type == "cpu" and (change := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        change(MMAP_THRESHOLD, MMAP_BYTES)


def resident_bytes() -> int:
    """Return the resident memory of this process, without freed memory that the C library keeps."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    return int(psutil.Process().memory_info().rss)


def bytes_of_all_models() -> int:
    """Return the bytes of the parameters, gradients and optimizer state of all models in the memory of this process.

    These include models of earlier cells, and parameters without a model that autograd or a variable still has.
    """
    # The types come first, because `isinstance` runs code of lazy modules and proxies.
    objects = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor | Optimizer)]
    parameters = [one for one in objects if isinstance(one, nn.Parameter)]
    states = [getattr(one, "state", None) for one in objects if isinstance(one, Optimizer)]
    found = [*parameters, *(parameter.grad for parameter in parameters), *tree_leaves(states)]
    storages = [_local(tensor).untyped_storage() for tensor in found if _has_memory(tensor)]
    return sum({one._cdata: one.nbytes() for one in storages if one.device.type == "cpu"}.values())


def tensors(model: nn.Module, optimizer: Any) -> dict[str, list[torch.Tensor]]:
    """Return this rank's parameters, gradients and optimizer state. Tensors without memory are left out."""
    parameters = list(model.parameters())
    found: dict[str, list[Any]] = {
        "parameters": parameters,
        "gradients": [parameter.grad for parameter in parameters if parameter.grad is not None],
        "optimizer": tree_leaves(list(optimizer.state.values())) if isinstance(optimizer, Optimizer) else [],
    }
    return {name: [_local(one) for one in these if _has_memory(one)] for name, these in found.items()}


def size_of(these: Iterable[torch.Tensor]) -> int:
    """Return the number of bytes of tensors."""
    return sum(tensor.nbytes for tensor in these)


def _on(device: torch.device, found: dict[str, list[torch.Tensor]]) -> int:
    return size_of(tensor for these in found.values() for tensor in these if tensor.device.type == device.type)


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_meta and not nn.parameter.is_lazy(value)


@torch.no_grad()
def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _status(name: str) -> int | None:
    """Return a size in bytes from this process's status, or None if the kernel does not report it."""
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
