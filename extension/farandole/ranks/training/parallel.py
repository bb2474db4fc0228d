"""Makes a model and its optimizer part of the world: same start on all ranks, gradients averaged over them."""

from __future__ import annotations

import inspect
import io
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.training import averaging
from farandole.ranks.world import collectives, membership

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_KNOWN = inspect.signature(DistributedDataParallel).parameters
# Torch 2.13 warns of the second name, which is all that earlier ones know.
NO_SYNC: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _KNOWN else "broadcast_buffers": False,
}
"""Without it each forward pass has a collective: an evaluation on one rank would wait for ever."""


class GradientWeight:
    """Scales the gradients of a model while this rank's share of a batch is larger or smaller than the mean share.

    A hook on a parameter runs before the gradient is accumulated, so before either backend averages it. Hooks exist
    only while the weight is not 1, so that full batches cost nothing.
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
    """DistributedDataParallel that looks like the module it wraps, so that a cell reads the same on any backend."""

    def rejoin(self) -> None:
        """Begin anew, in the present world: a wrapper holds on to the process group that it was made in."""
        module, unused, training = self.module, self.find_unused_parameters, self.training
        self.__dict__.clear()
        self.__init__(module, find_unused_parameters=unused, **NO_SYNC)  # type: ignore[misc]
        super().train(training)  # type: ignore[no-untyped-call]

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the wrapped module, without the prefix ``module.``."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state of the wrapped module."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the wrapped module's names and parameters."""
        yield from self.module.named_parameters(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # not there yet: the wrapper is being made
                raise
            return getattr(self.module, name)


def distribute(model: nn.Module, optimizer: Any, *, find_unused_parameters: bool) -> tuple[nn.Module, Any]:
    """Return model and optimizer as part of the world; without one the model only moves to its device."""
    if isinstance(model, Parallel):  # a cell that is run again, maybe in a new world
        model = model.module
    # A world of one that may grow is a world.
    backend = context.backend() if context.size() > 1 or membership.current().active else "none"
    if backend == "horovod":
        _refuse_bfloat16(model)
    model.to(context.device())
    if backend == "none":
        return model, optimizer
    _broadcast_model(model, backend)
    if optimizer is not None and not context.outside():  # a rank that will join gets the others' state then
        _broadcast_optimizer(optimizer)
    if backend == "horovod":
        return model, _horovod_optimizer(model, optimizer)
    return _torch_model(model, find_unused_parameters), optimizer


def _torch_model(model: nn.Module, find_unused_parameters: bool) -> nn.Module:
    if not any(p.requires_grad for p in model.parameters()):
        return model  # nothing to average, and DistributedDataParallel would refuse it
    return Parallel(model, find_unused_parameters=find_unused_parameters, **NO_SYNC)


def rejoin(parts: Iterable[Any]) -> None:
    """Bind the models among ``parts`` to the world that there is now; Horovod's optimizers always use that."""
    for part in parts:
        for module in part.modules() if isinstance(part, nn.Module) else ():
            if isinstance(module, Parallel):
                module.rejoin()


def _horovod_optimizer(model: nn.Module, optimizer: Any) -> Any:
    if optimizer is None or hasattr(optimizer, "_allreduce_delay"):  # that attribute: wrapped by an earlier run
        return optimizer
    names = {parameter: name for name, parameter in model.named_parameters()}
    owned = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    named = [(names.get(p, f"optimizer.{i}"), p) for i, p in enumerate(owned)]
    wrapped = averaging.distributed(optimizer, named)
    # Horovod makes a new optimizer over the same groups; what a checkpoint brought has to move along.
    wrapped.state.update(optimizer.state)
    return wrapped


def _broadcast_model(model: nn.Module, backend: str) -> None:
    named = [*model.named_parameters(), *model.named_buffers()]
    if backend == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters([(name, tensor.data) for name, tensor in named], root_rank=0)
        return
    import torch.distributed as dist

    for _, tensor in named:
        dist.broadcast(tensor.data, src=0)


def _broadcast_optimizer(optimizer: Any) -> None:
    # Not hvd.broadcast_optimizer_state: it takes a step with zero gradients to create the state, and that step
    # already counts for Adam and decays weights.
    file = io.BytesIO()
    if context.rank() == 0:
        torch.save(optimizer.state_dict(), file)
    data = collectives.broadcast_bytes(file.getvalue(), root=0)
    if context.rank() != 0:
        # From rank 0 of the same user's world, so it may be unpickled whole.
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
        optimizer.load_state_dict(state)


def _refuse_bfloat16(model: nn.Module) -> None:
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.dtype == torch.bfloat16:
            raise UsageError(
                f"fd.prepare: {name!r} is bfloat16, which Horovod cannot average; use model.float(), with "
                f"torch.autocast for speed, or choose the torch backend: %%distributed_train --backend torch."
            )
