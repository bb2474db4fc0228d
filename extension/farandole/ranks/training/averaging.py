"""Averages Horovod gradients during ``backward``, as DistributedDataParallel does."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from farandole.ranks.training.sync import gradients
from farandole.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.hooks import RemovableHandle

_hooks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""The hook on each parameter. A new optimizer replaces the hooks of an earlier optimizer on the same parameters."""


def release(optimizer: torch.optim.Optimizer) -> None:
    """Average the gradients of these parameters no more, as an earlier optimizer of them did."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (hook := _hooks.pop(parameter, None)) is not None:  # type: ignore[no-untyped-call]
                hook.remove()


def distributed(optimizer: Any, named: Sequence[tuple[str, torch.Tensor]], compressor: Any) -> Any:
    """Wrap ``optimizer`` in Horovod's optimizer, so that gradients are averaged by the time ``backward`` returns.

    Gradients travel as ``compressor``, one of ``hvd.Compression``, encodes them.

    Horovod's own hooks finish averaging in ``optimizer.step()``, which has three problems:

    - Code between ``backward`` and ``step`` (gradient clipping, ``GradScaler``) sees only this rank's gradients.
    - A second backward pass before ``step`` raises an error.
    - Hooks of an optimizer from an earlier cell conflict with the hooks of a new optimizer.

    Code that calls ``optimizer.synchronize()`` itself still works.
    """
    from horovod.torch.optimizer import _DistributedOptimizer

    # Like hvd.DistributedOptimizer, this creates a class with the methods of Horovod and of the user's optimizer.
    kind = type(optimizer)
    methods = dict(_DistributedOptimizer.__dict__) | {"_register_hooks": lambda _: None}
    wrapped = type(kind.__name__, (kind,), methods)(optimizer.param_groups, named, compressor)
    _Averaging(wrapped, kind)
    return wrapped


class _Averaging:
    def __init__(self, optimizer: Any, kind: type[torch.optim.Optimizer]) -> None:
        self._optimizer = optimizer
        self._kind = kind
        self._wait = optimizer.synchronize
        self._backward: int | None = None
        self._world = world.current().times_left
        self._done = False
        # Horovod's step() calls optimizer.synchronize(), so this replaces what step() waits for.
        optimizer.synchronize = self._synchronize
        optimizer.zero_grad = self._zero_grad
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    optimizer._requires_update.add(parameter)
                    self._hook(parameter)

    def _hook(self, parameter: torch.Tensor) -> None:
        # A parameter may outlive its optimizer and must not keep the optimizer alive.
        method = weakref.WeakMethod(self._begin)

        def begin(parameter: torch.Tensor) -> None:
            if (method_now := method()) is not None:
                method_now(parameter)

        if parameter in _hooks:
            _hooks[parameter].remove()
        handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(begin)  # type: ignore[no-untyped-call]
        _hooks[parameter] = handle

    def _begin(self, parameter: torch.Tensor) -> None:
        """Start averaging a gradient while the backward pass continues; `_end` runs when the pass is complete."""
        self._done = False
        self._drop_handles_of_left_world()
        self._optimizer._handles[parameter] = self._optimizer._allreduce_grad_async(parameter)
        number = torch._C._current_graph_task_id()
        if number != self._backward:  # a flag would stay set after an aborted pass
            self._backward = number
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        with gradients.blocked(self._optimizer):
            self._wait()
        # Otherwise step() would warn that the user has called synchronize().
        self._optimizer._synchronized = False
        self._done = True

    def _zero_grad(self, *args: Any, **options: Any) -> None:
        """Drop averages from a pass that was aborted with its world, then call the user's ``zero_grad``.

        Raises AssertionError (from Horovod) if averages from a pass that was aborted in this world are still in flight.
        """
        self._drop_handles_of_left_world()
        if self._optimizer._handles:
            type(self._optimizer).zero_grad(self._optimizer)
        self._kind.zero_grad(self._optimizer, *args, **options)

    def _drop_handles_of_left_world(self) -> None:
        left = world.current().times_left
        if self._world != left:
            self._world = left
            self._optimizer._handles.clear()

    def _synchronize(self) -> None:
        """Average the gradients that no backward pass has averaged, e.g. gradients that the user's code has set."""
        if not self._done:
            with gradients.blocked(self._optimizer):
                self._wait()
        self._done = False
        gradients.end_step(self._optimizer)
