"""Which optimizers have ranks that train on their own between averages."""

from __future__ import annotations

import weakref

from torch import nn
from torch.optim import Optimizer

from farandole.ranks.training.sync.local_training import LocalTraining
from farandole.ranks.training.sync.modes import Asynchronous, Auto, Local
from farandole.ranks.training.sync.server.asynchronous_training import AsynchronousTraining

Own = Asynchronous | Auto | Local
"""The modes in which each rank trains on its own."""

_attached: weakref.WeakKeyDictionary[Optimizer, AsynchronousTraining | LocalTraining] = weakref.WeakKeyDictionary()


def attach(model: nn.Module, optimizer: Optimizer, mode: Own) -> AsynchronousTraining | LocalTraining:
    """Average the parameters of ``model`` between the steps of ``optimizer``. This replaces earlier averages."""
    detach(optimizer)
    kind = AsynchronousTraining if isinstance(mode, Asynchronous) else LocalTraining
    training = _attached[optimizer] = kind(model, optimizer, mode)  # type: ignore[arg-type]
    return training


def detach(optimizer: Optimizer) -> None:
    """Stop the averages between the steps of ``optimizer``, if there are any."""
    if (training := _attached.pop(optimizer, None)) is not None:
        training.remove_hooks()


def average_now(optimizer: Optimizer) -> None:
    """Wait for an average of the parameters that ``optimizer`` trains, if ranks train them on their own.

    All ranks must call this function after the same step.
    """
    if (training := _attached.get(optimizer)) is not None:
        training.average_now()
