"""Which optimizers have ranks that train on their own between averages."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from farandole.ranks.training.sync.local_training import LocalTraining
from farandole.ranks.training.sync.modes import Asynchronous, Auto, Local
from farandole.ranks.training.sync.server.asynchronous_training import AsynchronousTraining
from farandole.ranks.training.sync.training import Training
from farandole.ranks.training.sync.wrappers import refuse

LocalUpdateMode = Asynchronous | Auto | Local
"""The modes in which each rank trains on its own."""

_attached: weakref.WeakKeyDictionary[Optimizer, Training] = weakref.WeakKeyDictionary()


def attach(model: nn.Module, optimizer: Optimizer, mode: LocalUpdateMode) -> None:
    """Average the parameters of ``optimizer`` between its steps, in place of earlier averages. Refuse any others."""
    detach(optimizer)
    if any(group["params"] for group in optimizer.param_groups):
        _count_skipped_steps()
        refuse(model, optimizer, mode)
        _attached[optimizer] = (
            AsynchronousTraining(model, optimizer, mode)
            if isinstance(mode, Asynchronous)
            else LocalTraining(model, optimizer, mode)
        )


def detach(optimizer: Optimizer) -> None:
    """Stop the averages between the steps of ``optimizer``, if there are any."""
    if (training := _attached.pop(optimizer, None)) is not None:
        training.close()


def average_now(optimizer: Optimizer, batches: Iterable[Any] | None = None) -> None:
    """Wait for an average of the parameters that ``optimizer`` trains, if ranks train them on their own.

    If there are ``batches``, recompute the statistics of batch normalization from them. All ranks must call this
    function after the same step.
    """
    if (training := _attached.get(optimizer)) is not None:
        training.average_now(batches)


def average_all(since: float) -> None:
    """Do the same for all optimizers that have taken steps after a time, as `time.perf_counter` says.

    Optimizers of earlier loops are left out. Some of them may not exist any more on other ranks, which depends on when
    each rank collects its garbage.
    """
    for training in list(_attached.values()):
        if training.stepped > since:
            training.average_now()


def _count_skipped_steps() -> None:
    """Make ``GradScaler`` tell a training when it leaves out a step, which it decides for each rank alone."""
    original = GradScaler._maybe_opt_step
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def maybe_step(self: GradScaler, optimizer: Optimizer, *args: Any, **options: Any) -> Any:
        training = _attached.get(optimizer)
        before = training.steps if training is not None else 0
        result = original(self, optimizer, *args, **options)
        if training is not None and training.steps == before:
            training.skip_step(optimizer)
        return result

    GradScaler._maybe_opt_step = maybe_step  # type: ignore[method-assign]
