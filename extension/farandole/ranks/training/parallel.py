"""Gives a model and its optimizer the same initial state on all ranks, and averages the gradients."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.state.nested import broadcast_state
from farandole.ranks.training import averaging
from farandole.ranks.training.sync import attached, compression, gradients, wrappers
from farandole.ranks.training.sync.modes import Asynchronous, Sync
from farandole.ranks.world import collectives, membership

_KNOWN = inspect.signature(DistributedDataParallel).parameters
# torch 2.13 deprecates the second name, and earlier versions know only that name.
NO_SYNC: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _KNOWN else "broadcast_buffers": False,
}
"""Options that disable the collective in each forward pass, so that an evaluation on a single rank does not hang."""


class GradientWeight:
    """Scales a model's gradients if this rank's share of a batch is larger or smaller than the mean share.

    A hook on a parameter runs before its gradient is accumulated, and therefore before a backend averages the gradient.
    Hooks are registered only while the weight is not 1, so that full batches have no overhead.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._hooks: list[Any] = []

    def set(self, weight: float) -> None:
        """Scale the gradients of the next backward passes by ``weight``."""
        while self._hooks:
            self._hooks.pop().remove()
        if weight == 1:
            return
        scale: Callable[[torch.Tensor], torch.Tensor] = lambda gradient: gradient * weight  # noqa: E731
        self._hooks = [p.register_hook(scale) for p in self._model.parameters() if p.requires_grad]  # type: ignore[no-untyped-call]


class Parallel(DistributedDataParallel):
    """DistributedDataParallel that behaves like the module it wraps, so that the same cell runs on any backend.

    Args:
        module (torch.nn.Module): the model.
        find_unused_parameters (bool): as in DistributedDataParallel.
        sync (Sync): how gradients travel.
    """

    def __init__(self, module: nn.Module, *, find_unused_parameters: bool, sync: Sync) -> None:
        options = NO_SYNC | compression.wrapper_options(module, sync)
        with wrappers.admitted(module):
            super().__init__(module, find_unused_parameters=find_unused_parameters, **options)
        self._sync = sync
        compression.register(self, sync)

    def rejoin(self) -> None:
        """Initialize this wrapper again in the current world. Otherwise it would keep an earlier process group."""
        module, unused, training, sync = self.module, self.find_unused_parameters, self.training, self._sync
        self.__dict__.clear()
        self.__init__(module, find_unused_parameters=unused, sync=sync)  # type: ignore[misc]
        super().train(training)  # type: ignore[no-untyped-call]

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the wrapped module, without the prefix ``module.`` in its keys."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state of the wrapped module."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the names and parameters of the wrapped module."""
        yield from self.module.named_parameters(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # accessed by the constructor before it is set
                raise
            return getattr(self.module, name)


def distribute(model: nn.Module, optimizer: Any, *, find_unused_parameters: bool, sync: Sync) -> tuple[nn.Module, Any]:
    """Prepare a model and an optimizer for the current world, and return them.

    Without a world, the model is only moved to this rank's device.
    """
    if isinstance(model, Parallel):  # the cell has been run before, possibly in another world
        model = model.module
    # In an elastic run, a world of one rank may grow, so it needs the wrappers as well.
    backend = context.backend() if context.size() > 1 or membership.current().active else "none"
    _refuse(model, optimizer, backend, sync)
    model.to(context.device())
    if optimizer is not None:
        attached.detach(optimizer)  # an earlier run of the cell may have used another mode
        gradients.stop(optimizer)
        wrappers.admit(model, optimizer)
    if backend == "none":
        return model, optimizer
    if not context.outside():
        check_same_model(model)
    broadcast_model(model, backend)
    if optimizer is not None and not context.outside():  # a new rank receives the state when it joins
        broadcast_optimizer(optimizer)
    if isinstance(sync, attached.LocalUpdateMode):
        averaging.release(optimizer)
        attached.attach(model, optimizer, sync)
        return model, optimizer
    if backend == "horovod":
        optimizer = _horovod_optimizer(model, optimizer, sync)
    else:
        model = _torch_model(model, find_unused_parameters, sync)
    if optimizer is not None:
        gradients.measure(model, optimizer, sync)
    return model, optimizer


def _refuse(model: nn.Module, optimizer: Any, backend: str, sync: Sync) -> None:
    """Raise UsageError if the backend or the mode does not support this model or optimizer."""
    if backend == "horovod":
        _refuse_bfloat16(model)
        _refuse_shared_gpus()
    if isinstance(sync, attached.LocalUpdateMode):
        _refuse_without_steps(optimizer, sync)
        _refuse_other_averages(model, optimizer)
    if isinstance(sync, Asynchronous) and backend == "none":
        raise UsageError('fd.sync.asynchronous needs two ranks or more; start more workers, or use sync="step".')


def _torch_model(model: nn.Module, find_unused_parameters: bool, sync: Sync) -> nn.Module:
    if not any(p.requires_grad for p in model.parameters()):
        return model  # DistributedDataParallel raises an error if there is nothing to average
    return Parallel(model, find_unused_parameters=find_unused_parameters, sync=sync)


def rejoin(parts: Iterable[Any]) -> None:
    """Initialize the models among ``parts`` again in the current world. Horovod's optimizers need no change."""
    for part in parts:
        for module in part.modules() if isinstance(part, nn.Module) else ():
            if isinstance(module, Parallel):
                module.rejoin()


def _horovod_optimizer(model: nn.Module, optimizer: Any, sync: Sync) -> Any:
    if optimizer is None:
        return None
    compressor = compression.horovod_compressor(sync)
    if wrappers.averages_gradients(optimizer):  # wrapped by an earlier run of the cell
        optimizer._compression = compressor
        return optimizer
    names = {parameter: name for name, parameter in model.named_parameters()}
    owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    named = [(names.get(p, f"optimizer.{i}"), p) for i, p in enumerate(owned)]
    wrapped = averaging.distributed(optimizer, named, compressor)
    # Horovod creates a new optimizer over the same groups, so state loaded from a checkpoint has to be copied to it.
    wrapped.state.update(optimizer.state)
    return wrapped


def _refuse_without_steps(optimizer: Any, sync: Sync) -> None:
    if optimizer is None:
        raise UsageError(
            f"fd.prepare: fd.sync.{sync.name} averages between the steps of an optimizer; pass the optimizer too, or "
            "leave out sync for a model that is not trained."
        )


def _refuse_other_averages(model: nn.Module, optimizer: Any) -> None:
    if isinstance(model, DistributedDataParallel):
        raise UsageError(
            "fd.prepare: the model is wrapped in DistributedDataParallel, which averages the gradients of each step; "
            "pass the model itself."
        )
    if wrappers.averages_gradients(optimizer):
        raise UsageError(
            "fd.prepare: Horovod averages the gradients of this optimizer in each step; create a new optimizer in the "
            "cell, and pass that one."
        )


def check_same_model(model: nn.Module, caller: str = "fd.prepare") -> None:
    """Raise UsageError if the models of the ranks have different parameters. A broadcast would then fail or hang."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    own = [
        [name, list(tensor.shape), str(tensor.dtype), tensor.requires_grad, tensor.is_meta] for name, tensor in tensors
    ]
    digest = hashlib.sha256(json.dumps(own).encode()).digest()
    each = collectives.gather_bytes(digest)
    if other := [rank for rank, found in enumerate(each) if found != each[0]]:
        raise UsageError(
            f"{caller}: rank {other[0]} has another model than rank 0, with other parameters or shapes, or without "
            "memory from fd.deferred; create the same model on all ranks."
        )


def broadcast_model(model: nn.Module, backend: str) -> None:
    """Give all ranks the parameters and buffers of rank 0. Those without memory stay as they are."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    named = [(name, tensor) for name, tensor in tensors if not tensor.is_meta]
    if backend == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters([(name, tensor.data) for name, tensor in named], root_rank=0)
        return
    import torch.distributed as dist

    for _, tensor in named:
        dist.broadcast(tensor.data, src=0)


def broadcast_optimizer(optimizer: Any) -> None:
    """Give the optimizers of all ranks the state of rank 0."""
    # hvd.broadcast_optimizer_state takes a step with zero gradients to create the state. That step would change the
    # weights (through weight decay) and Adam's step count.
    state = broadcast_state(optimizer.state_dict(), root=0)
    if context.rank() != 0:
        optimizer.load_state_dict(state)


def _refuse_shared_gpus() -> None:
    """Raise UsageError if Horovod would use NCCL, which cannot connect ranks that share a GPU."""
    import horovod.torch as hvd

    gpus, ranks = torch.cuda.device_count(), context.local_size()
    if 0 < gpus < ranks and hvd.nccl_built():
        raise UsageError(
            f"fd.prepare: the {ranks} ranks of this worker share {gpus} GPU{'s' * (gpus > 1)}, and NCCL, which Horovod "
            "uses on GPUs, needs a GPU for each rank. Use `--backend torch`, or start fewer ranks with `--ranks`."
        )


def _refuse_bfloat16(model: nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.dtype == torch.bfloat16:
            raise UsageError(
                f"fd.prepare: {name!r} is bfloat16, which Horovod cannot average; use model.float(), with "
                f"torch.autocast for speed, or choose the torch backend: %%distributed_train --backend torch."
            )
