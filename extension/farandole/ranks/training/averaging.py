"""When Horovod's optimizer averages gradients: within ``backward``, as DistributedDataParallel does."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from farandole.ranks.world import world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.hooks import RemovableHandle

_hooks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""The hook of each parameter: the optimizer that was made last has its gradients averaged."""


def distributed(optimizer: Any, named: Sequence[tuple[str, torch.Tensor]]) -> Any:
    """Return Horovod's optimizer over ``optimizer``, which leaves averaged gradients when a backward pass returns.

    Horovod's own hooks leave the end of it to ``optimizer.step()``: what works on gradients in between (clipping,
    ``GradScaler``) meets some of this rank's own, a second backward pass is refused, and the hooks of an optimizer
    that a cell made before stand in the way of a new one's. With these a cell reads as with torch. Code that calls
    ``optimizer.synchronize()`` itself gives the same as ever.
    """
    import horovod.torch as hvd
    from horovod.torch.optimizer import _DistributedOptimizer

    # As hvd.DistributedOptimizer does it: a class for each optimizer, of its own and Horovod's methods.
    kind = type(optimizer)
    methods = dict(_DistributedOptimizer.__dict__) | {"_register_hooks": lambda _: None}
    wrapped = type(kind.__name__, (kind,), methods)(optimizer.param_groups, named, hvd.Compression.none)
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
        # Horovod's step() asks the optimizer itself for it.
        optimizer.synchronize = self._synchronize
        optimizer.zero_grad = self._zero_grad
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    optimizer._requires_update.add(parameter)
                    self._hook(parameter)

    def _hook(self, parameter: torch.Tensor) -> None:
        # A parameter may outlive its optimizer, and must not keep it.
        method = weakref.WeakMethod(self._begin)

        def begin(parameter: torch.Tensor) -> None:
            if (there := method()) is not None:
                there(parameter)

        if parameter in _hooks:
            _hooks[parameter].remove()
        handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(begin)  # type: ignore[no-untyped-call]
        _hooks[parameter] = handle

    def _begin(self, parameter: torch.Tensor) -> None:
        """Begin with a gradient that is there, beside the rest of the backward pass, which ends with the others'."""
        self._done = False
        self._forget_a_world_that_was_left()
        self._optimizer._handles[parameter] = self._optimizer._allreduce_grad_async(parameter)
        number = torch._C._current_graph_task_id()
        if number != self._backward:  # not a flag: a pass that is broken off would leave it set
            self._backward = number
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        self._wait()
        # Else step() would warn of a user who synchronized.
        self._optimizer._synchronized = False
        self._done = True

    def _zero_grad(self, *args: Any, **options: Any) -> None:
        """Do as the user's optimizer; a backward pass that ended with its world, by an interrupt, say, is forgotten.

        Raises: AssertionError, Horovod's own, where averages of a pass that was broken off are on their way.
        """
        self._forget_a_world_that_was_left()
        if self._optimizer._handles:
            type(self._optimizer).zero_grad(self._optimizer)
        self._kind.zero_grad(self._optimizer, *args, **options)

    def _forget_a_world_that_was_left(self) -> None:
        left = world.current().times_left
        if self._world != left:
            self._world = left
            self._optimizer._handles.clear()

    def _synchronize(self) -> None:
        """Average what no backward pass has averaged, as gradients that were set by hand."""
        if not self._done:
            self._wait()
        self._done = False
