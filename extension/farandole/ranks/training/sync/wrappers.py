"""Refuses wrappers that average gradients around a model or an optimizer whose ranks train on their own.

`parallel` refuses wrappers that ``fd.prepare`` gets. This module refuses those that a cell applies afterwards:

- DistributedDataParallel reads an attribute of the model when it is created, and the value that is set here raises an
  error. Copies of the model, and pickled models, have an ordinary list instead.
- Horovod's optimizer is a new optimizer without the hooks of the wrapped one, so a hook for all optimizers checks it
  before its first step.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakTensorKeyDictionary

from farandole.exceptions import UsageError
from farandole.ranks.training.sync.modes import Sync

READ_BY_WRAPPER = "_ddp_params_and_buffers_to_ignore"
"""The attribute of a model with the names of parameters that DistributedDataParallel does not average."""

_refused: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""The name of the mode in which each parameter is trained."""


class Refusal:
    """Stands for names of parameters. Raises UsageError when the names are read.

    Attributes:
        names: the names that the model had, or None.
    """

    def __init__(self, mode: str, names: Any) -> None:
        self._mode = mode
        self.names = names

    def __iter__(self) -> Iterator[str]:
        raise UsageError(
            f"fd.prepare has selected fd.sync.{self._mode} for this model, and DistributedDataParallel would also "
            "average the gradients of each step; leave out DistributedDataParallel. With "
            'sync="step", fd.prepare applies it.'
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self.names or ()),)


def refuse(model: nn.Module, optimizer: Optimizer, mode: Sync) -> None:
    """Refuse wrappers of a model, and of optimizers for the parameters of ``optimizer``."""
    admit(model, optimizer)
    keeper = _keeper(model)
    setattr(keeper, READ_BY_WRAPPER, Refusal(mode.name, getattr(keeper, READ_BY_WRAPPER, None)))
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _refused[parameter] = mode.name
    _check_all_optimizers()


def admit(model: nn.Module, optimizer: Any) -> None:
    """Admit wrappers again. The optimizer may be of a type without groups of parameters."""
    keeper = _keeper(model)
    if isinstance(refusal := vars(keeper).get(READ_BY_WRAPPER), Refusal):
        _restore(keeper, refusal)
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            _refused.pop(parameter, None)  # type: ignore[no-untyped-call]


@contextmanager
def admitted(model: nn.Module) -> Iterator[None]:
    """Admit wrappers of a model in a block, in which this package wraps it for an evaluation."""
    keeper = _keeper(model)
    if not isinstance(refusal := vars(keeper).get(READ_BY_WRAPPER), Refusal):
        yield
        return
    _restore(keeper, refusal)
    try:
        yield
    finally:
        setattr(keeper, READ_BY_WRAPPER, refusal)


def averages_gradients(optimizer: Any) -> bool:
    """Return whether Horovod averages the gradients of this optimizer."""
    return hasattr(optimizer, "_allreduce_delay")


def _keeper(model: nn.Module) -> nn.Module:
    """Return the module that has the attributes of a model. The wrapper of ``torch.compile`` passes them on."""
    compiled = model._modules.get("_orig_mod")
    return model if compiled is None else compiled


def _restore(model: nn.Module, refusal: Refusal) -> None:
    if refusal.names is None:
        delattr(model, READ_BY_WRAPPER)
    else:
        setattr(model, READ_BY_WRAPPER, refusal.names)


@functools.cache
def _check_all_optimizers() -> None:
    register_optimizer_step_pre_hook(_check)


def _check(optimizer: Optimizer, _args: Any, _options: Any) -> None:
    if not averages_gradients(optimizer):
        return
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    if (mode := next((_refused[one] for one in parameters if one in _refused), None)) is not None:
        raise UsageError(
            f"fd.prepare has selected fd.sync.{mode} for these parameters, and hvd.DistributedOptimizer would also "
            "average their gradients in each step; take the steps with the optimizer that fd.prepare has returned. To "
            'train with Horovod instead, call fd.prepare(model, optimizer) with sync="step" first.'
        )
