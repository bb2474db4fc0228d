"""``fd.deferred``: models that are made without memory, and get it when ``fd.prepare`` shards them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakValueDictionary

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
      What :func:`farandole.load_weights` loads before that needs no such method.

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


@dataclass(frozen=True)
class LaterValues:
    """Values that a model without memory gets as soon as it has memory.

    Attributes:
        names: the names of the values, by those of the model's parameters and buffers.
        load: copies the values with these names into the model, or into what a rank has of it.
    """

    names: Mapping[str, str]
    load: Callable[[nn.Module, Mapping[str, str]], object]

    def inside(self, name: str) -> LaterValues:
        """Return the values for the model that contains this one under ``name``."""
        return LaterValues({f"{name}.{own}" if name else own: value for own, value in self.names.items()}, self.load)


_later: WeakKeyDictionary[nn.Module, list[LaterValues]] = WeakKeyDictionary()


def load_later(model: nn.Module, values: LaterValues) -> None:
    """Give values to a model when it gets memory."""
    _later.setdefault(model, []).append(values)


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
        self._later = [
            values.inside(name) for module, (_, name) in self._modules.items() for values in _later.pop(module, [])
        ]

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
            with rng.seeded((self._seed + number) % 2**63, gpu=True):
                self._materialize(module, name)

    def load(self, module: nn.Module) -> None:
        """Load what ``fd.load_weights`` has left for later into the model, or into what this rank has of it."""
        for values in self._later:
            values.load(module, values.names)

    def _materialize(self, module: nn.Module, name: str) -> None:
        unset, shared = self._with_memory(module)
        values = [parameter.detach().clone() for parameter in shared]
        versions = {id(tensor): tensor._version for tensor in unset}
        for method in RESETS:
            if callable(reset := getattr(module, method, None)):
                reset()
        for parameter, value in zip(shared, values, strict=True):
            # As without `deferred`, the module that has it first sets the values of a shared parameter.
            parameter.detach().copy_(value)
        later = {key for values in self._later for key in values.names}
        for key, tensor in (*module.named_parameters(name, recurse=False), *module.named_buffers(name, recurse=False)):
            if key not in later and id(tensor) in versions and _is_unset(tensor, versions[id(tensor)]):
                raise UsageError(
                    f"fd.deferred: {type(module).__name__} {name!r} does not set {key!r} in reset_parameters(); define "
                    "that method so that it sets all parameters and buffers of the module itself, load them with "
                    "fd.load_weights before this call, or make the model without fd.deferred."
                )

    def _with_memory(self, module: nn.Module) -> tuple[list[torch.Tensor], list[nn.Parameter]]:
        """Give memory to what a module itself has. Return what has no values yet, and parameters of earlier modules."""
        unset: list[torch.Tensor] = []
        shared: list[nn.Parameter] = []
        for key, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta:
                if (made := self._made.get(id(parameter))) is None:
                    # Kept, because another parameter could get the id of one that is gone.
                    self._meta.append(parameter)
                    made = self._made[id(parameter)] = nn.Parameter(_unset(parameter), parameter.requires_grad)
                    unset.append(made)
                else:
                    shared.append(made)
                module._parameters[key] = made
        for key, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[key] = empty = _unset(buffer)
                unset.append(empty)
        return unset, shared


def _unset(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with memory on this rank's device. Its values are not a number, if its dtype has that."""
    made = torch.empty_like(tensor, device=context.device())
    return made.fill_(float("nan")) if made.is_floating_point() else made.zero_()


def _is_unset(tensor: torch.Tensor, version: int) -> bool:
    """Return whether a tensor, which had this version before, may still have no values."""
    if tensor.is_floating_point():
        return bool(tensor.isnan().any())
    return tensor._version == version


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    """Return the parameters and buffers of a module itself."""
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]
