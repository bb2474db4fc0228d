"""Which parameters belong to a stage of a pipeline, so that other ranks have other parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from farandole.ranks import context

_in_stages: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""The parameters of this rank's stages. The value is True if another rank before this one has the parameter, too."""


def mark(parameters: Iterable[nn.Parameter]) -> None:
    """Record that parameters belong to a stage of this rank."""
    for parameter in parameters:
        _in_stages[parameter] = False


def mark_copy(parameter: nn.Parameter) -> None:
    """Record that a rank before this one has the parameter, too."""
    _in_stages[parameter] = True


def is_in_stage(parameter: object) -> bool:
    """Return whether a parameter belongs to a stage of a pipeline."""
    return isinstance(parameter, torch.Tensor) and parameter in _in_stages


def is_copy(parameter: object) -> bool:
    """Return whether a rank before this one has the parameter of a stage, too."""
    return is_in_stage(parameter) and bool(_in_stages[parameter])


def norm_of_all_stages(own: torch.Tensor, norm_type: float) -> torch.Tensor:
    """Return the norm of what all ranks have, from the norm of what each rank has. All ranks call this together."""
    import torch.distributed as dist

    norm = own.to(context.device(), torch.float64)
    if math.isinf(norm_type):
        dist.all_reduce(norm, dist.ReduceOp.MAX)
    else:
        norm = norm**norm_type
        dist.all_reduce(norm)
        norm = norm ** (1 / norm_type)
    return norm.to(own.dtype)
