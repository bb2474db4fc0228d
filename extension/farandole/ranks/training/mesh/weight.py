"""Weights the gradients of a sharded model, whose parameters have no gradients that a hook could scale."""

from __future__ import annotations

import copy
import dataclasses
import weakref
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map


class OutputWeight:
    """Scales what flows back into a model if this rank's share of a batch is larger or smaller than the mean share.

    It is the `farandole.ranks.training.shard.Weight` of a sharded model: all gradients of the loss pass its output.
    Use `output_weight` to get that of a model.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weight = 1.0
        # The hook is registered once and stays, because torch.compile ignores hooks that are registered later.
        model.register_forward_hook(self._scale)

    def set(self, weight: float) -> None:
        """Scale the gradients of the next forward passes by ``weight``."""
        self._weight = weight

    def _scale(self, *call: Any) -> Any:
        *_, output = call
        return output if self._weight == 1 else _scaled(output, self._weight)


def output_weight(model: nn.Module) -> OutputWeight:
    """Return the weight of this model. There is only one, so that cells that run again do not scale twice."""
    if (weight := _weights.get(model)) is None:
        weight = _weights[model] = OutputWeight(model)
    return weight


_weights: weakref.WeakKeyDictionary[nn.Module, OutputWeight] = weakref.WeakKeyDictionary()


def _scaled(output: Any, weight: float) -> Any:
    return tree_map(partial(_scaled_leaf, weight=weight), output)


def _scaled_leaf(value: Any, weight: float) -> Any:
    if isinstance(value, torch.Tensor):
        return _Scaled.apply(value, weight) if value.requires_grad else value  # type: ignore[no-untyped-call]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    # FSDP finds tensors in dataclasses, which `tree_map` takes for single values.
    changed = copy.copy(value)
    for field in dataclasses.fields(value):
        object.__setattr__(changed, field.name, _scaled(getattr(value, field.name), weight))
    return changed


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * ctx.weight, None
