"""``fd.deferred``: models that are made without memory, and get it when ``fd.prepare`` shards them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import nn

from farandole.exceptions import UsageError
from farandole.ranks import context, rng
from farandole.ranks.world import collectives

RESETS = ("reset_parameters", "_reset_parameters")
"""The methods that set parameters. ``torch.nn.MultiheadAttention`` has the second one."""


def deferred() -> AbstractContextManager[object]:
    """Make the models in a ``with`` block without memory, for models that are larger than the memory of a rank.

    - :func:`farandole.prepare` with a mesh gives them memory. At any time, each rank holds its shares and at most one
      whole unit. :func:`farandole.pipeline` gives memory to the rank's stage.
    - The parameters get their first values from ``reset_parameters()`` of the modules that own them, as torch's modules
      have it. They are the same for each number of ranks, but not those of a model that is made without this block.

    Returns:
        context manager: torch's device ``meta``.

    Example::

        with fd.deferred():
            model = Model()
        optimizer = torch.optim.AdamW(model.parameters())
        model, optimizer, loader = fd.prepare(model, optimizer, loader, mesh={"shard": -1})
    """
    return torch.device("meta")


def broadcast_seed() -> int:
    """Return rank 0's seed of torch on all ranks."""
    return int.from_bytes(collectives.broadcast_bytes(torch.initial_seed().to_bytes(8, "big"), root=0), "big")


class Materializer:
    """Gives the modules of one model memory on this rank's device, and the same values on all ranks.

    - A parameter with memory is moved to the device, and gets rank 0's values.
    - A parameter without memory gets its first values from random numbers. They depend on rank 0's seed and on the
      order of the modules, so that all ranks get the same values.

    All ranks must create it together, and call it for the same modules. Unless ``alike``, each rank may call it for
    other modules, and parameters with memory keep their values.
    """

    def __init__(self, model: nn.Module, *, alike: bool = True) -> None:
        self._modules = {module: (number, name) for number, (name, module) in enumerate(model.named_modules())}
        needed = any(tensor.is_meta for module in self._modules for tensor in _tensors(module))
        self._seed = broadcast_seed() if needed else 0
        self._alike = alike and context.size() > 1
        self._done: set[nn.Module] = set()
        self._made: WeakValueDictionary[int, nn.Parameter] = WeakValueDictionary()
        """The parameters that have memory, by the id of the parameter without it, which modules may share.

        Only the modules keep them, so that their memory is free as soon as they are sharded.
        """
        self._meta: list[nn.Parameter] = []

    def __call__(self, module: nn.Module) -> None:
        """Give memory to a module of the model and to all modules in it, except those that have it already.

        Raises:
            UsageError: a module has parameters or buffers that it does not set in ``reset_parameters()``.
        """
        for own in module.modules():
            self.only(own)

    def only(self, module: nn.Module) -> None:
        """Do the same for the parameters and buffers of a module itself, but not for the modules in it."""
        if module in self._done:
            return
        self._done.add(module)
        for tensor in _tensors(module):
            if not tensor.is_meta:
                tensor.data = tensor.data.to(context.device())
                if self._alike:
                    dist.broadcast(tensor.data, src=0)
        number, name = self._modules[module]
        if any(tensor.is_meta for tensor in _tensors(module)):
            with rng.seeded((self._seed + number) % 2**63):
                self._materialize(module, name)

    def _materialize(self, module: nn.Module, name: str) -> None:
        shared: list[nn.Parameter] = []
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                if (made := self._made.get(id(parameter))) is None:
                    # Kept, because another parameter could get the id of one that is gone.
                    self._meta.append(parameter)
                    made = self._made[id(parameter)] = nn.Parameter(_unset(parameter), parameter.requires_grad)
                else:
                    shared.append(made)
                module._parameters[key] = made
        for key, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[key] = _unset(buffer)
        values = [parameter.detach().clone() for parameter in shared]
        before = {id(tensor): tensor._version for tensor in _tensors(module)}
        for method in RESETS:
            if callable(reset := getattr(module, method, None)):
                reset()
        for parameter, value in zip(shared, values, strict=True):
            # As without `deferred`, the module that has it first sets the values of a shared parameter.
            parameter.detach().copy_(value)
        if any(_is_unset(tensor, before.get(id(tensor))) for tensor in _tensors(module)):
            raise UsageError(
                f"fd.deferred: {type(module).__name__} {name!r} does not set all of its parameters and buffers in "
                "reset_parameters(); define that method so that it sets them, or make the model without fd.deferred."
            )


def _unset(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with memory on this rank's device. Its values are not a number, if its dtype has that."""
    made = torch.empty_like(tensor, device=context.device())
    return made.fill_(float("nan")) if made.is_floating_point() else made.zero_()


def _is_unset(tensor: torch.Tensor, version: int | None) -> bool:
    """Return whether a tensor, which had this version before, may still have no values."""
    if tensor.is_floating_point():
        return bool(tensor.isnan().any())
    return tensor._version == version


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module itself."""
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]
