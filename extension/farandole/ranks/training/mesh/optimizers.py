"""Moves an optimizer from the parameters of a model to the shards of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from farandole.exceptions import UsageError


def check(optimizer: Any, model: nn.Module) -> None:
    """Raise UsageError if an optimizer has a parameter that is not the model's."""
    own = set(map(id, model.parameters()))
    if any(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"]):
        raise UsageError(
            "fd.prepare: the optimizer has parameters that are not the model's; a mesh shards the parameters of one "
            "model, so create the optimizer from model.parameters()."
        )


def allow_several_meshes(optimizer: Any) -> None:
    """Make an optimizer loop over single tensors if they are on several meshes. torch's loops over lists need one."""
    for group in optimizer.param_groups:
        if len({parameter.device_mesh for parameter in group["params"] if isinstance(parameter, DTensor)}) > 1:
            group["foreach"] = False


def moved(optimizer: Any, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> None:
    """Replace the parameters of an optimizer and shard its state, which must be the same on all ranks.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer, with parameters of ``before``.
        before: the model's parameters by name before it was sharded.
        after: the parameters of the same names afterwards.
    """
    replaced = {id(parameter): after[name] for name, parameter in before.items()}
    states = {replaced[id(parameter)]: state for parameter, state in optimizer.state.items()}
    for group in optimizer.param_groups:
        # Some optimizers, such as LBFGS, keep this list.
        group["params"][:] = [replaced[id(parameter)] for parameter in group["params"]]
    allow_several_meshes(optimizer)
    optimizer.state.clear()
    for parameter, state in states.items():
        optimizer.state[parameter] = {name: _like(parameter, value) for name, value in state.items()}


def _like(parameter: torch.Tensor, value: Any) -> Any:
    """Return a value of an optimizer's state. If it has the parameter's shape, it is sharded as the parameter."""
    if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        return value
    if isinstance(parameter, DTensor):
        # All ranks have the whole value, so that nothing has to be sent.
        value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    # With `offload`, shares are on the CPU, although the mesh has GPUs.
    return value.to(parameter.device)
