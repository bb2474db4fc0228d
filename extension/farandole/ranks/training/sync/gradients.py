"""What the modes ``step`` and ``compressed`` cost a rank, estimated so that the training does not get slower.

- The bytes follow from the sizes of the gradients, how they are compressed, and the number of ranks. They are those of
  a ring and of one backward pass in each step.
- With the torch backend, the time on the network is what DistributedDataParallel measures in the first ten steps and
  then in every hundredth: from the end of the computation of a backward pass to the end of its averages.
- With Horovod on CPUs, it is the time for which backward passes block until their averages have ended. On GPUs it is
  not known, because it would include computations of the backward pass.

Nothing here waits for a GPU or for the network.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from farandole.ranks import context
from farandole.ranks.training.sync.choice.prediction import bytes_sent
from farandole.ranks.training.sync.figures import Figures
from farandole.ranks.training.sync.modes import Compressed, Sync
from farandole.ranks.world import world

HALF_BYTES = 2
POWER_SGD_RATE = 2
"""PowerSGD compresses a gradient only if the factors are more than this many times smaller."""

_measured: weakref.WeakKeyDictionary[Optimizer, GradientFigures] = weakref.WeakKeyDictionary()


class GradientFigures:
    """Counts the steps of an optimizer whose gradients are averaged, and sends the costs every second.

    The first step after a change of the world is not counted.

    Attributes:
        hook: what calls `end_step` after each step, if it is a hook of the optimizer.
    """

    def __init__(self, model: nn.Module, mode: Sync) -> None:
        self.hook: RemovableHandle | None = None
        self._mode = mode
        self._model = model if isinstance(model, DistributedDataParallel) else None
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._size = gradient_bytes(trained, mode)
        self._blocks = self._model is None and not any(parameter.is_cuda for parameter in trained)
        self._blocked = 0.0
        self._figures = Figures()
        self._world: int | None = None

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Count the time of a block, in which this rank waits for averages of Horovod."""
        begun = time.perf_counter()
        yield
        self._blocked += time.perf_counter() - begun

    def end_step(self, *_: Any) -> None:
        """Count a step, and send the figures if the last ones are a second old."""
        left = world.current().times_left
        if self._world != left:
            self._world, self._blocked, self._figures = left, 0.0, Figures()
            self._figures.begin_step()
        elif self._figures.end_step():
            self._update()
            self._figures.show(self._mode)

    def _update(self) -> None:
        figures = self._figures
        figures.sent = figures.steps * bytes_sent("fp32", context.size(), self._size)
        if self._model is not None:
            figures.waited = _waited(self._model, figures.steps)
        else:
            figures.waited = self._blocked if self._blocks else None


def measure(model: nn.Module, optimizer: Any, mode: Sync) -> None:
    """Send what the averages of this model's gradients cost. This replaces earlier figures of the optimizer."""
    stop(optimizer)
    figures = _measured[optimizer] = GradientFigures(model, mode)
    # Some libraries have optimizers of other types, whose steps are not counted.
    if isinstance(model, DistributedDataParallel) and isinstance(optimizer, Optimizer):
        figures.hook = optimizer.register_step_post_hook(figures.end_step)


def stop(optimizer: Any) -> None:
    """Send no more figures of this optimizer."""
    figures = _measured.pop(optimizer, None)
    if figures is not None and figures.hook is not None:
        figures.hook.remove()


@contextmanager
def blocked(optimizer: Optimizer) -> Iterator[None]:
    """Count the time of a block, in which this rank waits for Horovod's averages of an optimizer."""
    if (figures := _measured.get(optimizer)) is None:
        yield
        return
    with figures.blocked():
        yield


def end_step(optimizer: Optimizer) -> None:
    """Count a step of an optimizer of Horovod, whose step hooks run twice."""
    if (figures := _measured.get(optimizer)) is not None:
        figures.end_step()


def gradient_bytes(parameters: Iterable[torch.Tensor], mode: Sync) -> int:
    """Return the size of the gradients of these parameters as they are sent."""
    return sum(_encoded_bytes(parameter, mode) for parameter in parameters)


def _encoded_bytes(gradient: torch.Tensor, mode: Sync) -> int:
    if not isinstance(mode, Compressed):
        return gradient.nbytes
    if mode.method == "fp16":
        return HALF_BYTES * gradient.numel()
    if gradient.dim() < 2:
        return gradient.nbytes
    rows, columns = gradient.shape[0], math.prod(gradient.shape[1:])
    factors = (rows + columns) * min(rows, columns, mode.rank)
    compressed = (rows + columns) * mode.rank * POWER_SGD_RATE < gradient.numel()
    return (factors if compressed else gradient.numel()) * gradient.element_size()


def _waited(model: DistributedDataParallel, steps: int) -> float | None:
    """Return the seconds that this many backward passes have waited for averages, or None if none has been measured."""
    logged: dict[str, float] = model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    try:
        waited = logged["avg_backward_comm_time"] - logged["avg_backward_compute_comm_overlap_time"]
    except KeyError:
        return None
    return steps * max(0.0, waited) / 1e9
