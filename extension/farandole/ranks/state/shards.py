"""States of which each rank has a part: tensors that a mesh shards, and stages of a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from farandole.ranks.training.pipeline.parameters import is_in_stage

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


@dataclass(frozen=True, eq=False)
class Shard:
    """This rank's part of a tensor, on the CPU, and where the part belongs."""

    local: torch.Tensor
    device: torch.device
    shape: torch.Size
    stride: tuple[int, ...]
    mesh: DeviceMesh
    placements: Sequence[Any]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the tensor."""
        return self.local.dtype

    @classmethod
    def of(cls, tensor: DTensor, copied: Callable[[torch.Tensor], torch.Tensor]) -> Shard:
        """Return this rank's part of ``tensor``, which ``copied`` has copied to the CPU."""
        own = tensor.to_local().detach()
        return cls(copied(own), own.device, tensor.shape, tensor.stride(), tensor.device_mesh, tensor.placements)

    def restored(self) -> DTensor:
        """Return the tensor with a copy of this part, on the device from which the part was copied."""
        return self._with(self.local.to(self.device, copy=True))

    def stored(self) -> DTensor:
        """Return the tensor with this part itself, which stays on the CPU, as it is written to disk."""
        return self._with(self.local)

    def _with(self, local: torch.Tensor) -> DTensor:
        from torch.distributed.tensor import DTensor
        from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

        # `DTensor.from_local` would copy the part to the GPU, for which it may be too large if it is offloaded.
        meta = TensorMeta(self.shape, self.stride, self.dtype)
        spec = DTensorSpec(self.mesh, tuple(self.placements), tensor_meta=meta)
        return DTensor(local, spec, requires_grad=False)  # type: ignore[no-untyped-call]


def is_shard(tensor: Any) -> TypeGuard[DTensor]:
    """Return whether a mesh shards a tensor. Importing its class, DTensor, would take a second."""
    return isinstance(tensor, torch.Tensor) and hasattr(tensor, "placements")


def is_sharded(part: Any) -> bool:
    """Return whether each rank has only a part of a model or an optimizer, because of a mesh or a pipeline."""
    return _is_fsdp(part) or any(is_shard(one) or is_in_stage(one) for one in _parameters(part))


def is_staged(part: Any) -> bool:
    """Return whether each rank has a stage of a model or an optimizer, because of a pipeline."""
    return any(map(is_in_stage, _parameters(part)))


def _is_fsdp(part: Any) -> bool:
    """Return whether a mesh shards a model, even if all of its parameters are gathered at the moment."""
    # A process without this module has no such model, and importing it would take a second.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    modules = part.modules() if isinstance(part, torch.nn.Module) else ()
    return fsdp is not None and any(isinstance(module, fsdp.FSDPModule) for module in modules)


def _parameters(part: Any) -> Iterator[torch.Tensor]:
    if isinstance(part, torch.nn.Module):
        yield from part.parameters()
    elif isinstance(part, torch.optim.Optimizer):
        for group in part.param_groups:
            yield from group["params"]
