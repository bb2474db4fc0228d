"""Weights the gradients of a sharded model, whose parameters have no gradients that a hook could scale."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only


class OutputWeight:
    """Scales what flows back into a model if this rank's share of a batch is larger or smaller than the mean share.

    It is the `farandole.ranks.training.shard.Weight` of a sharded model: all gradients of the loss pass its output.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._hook: Any = None

    def set(self, weight: float) -> None:
        """Scale the gradients of the next forward passes by ``weight``."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        if weight != 1:
            scale = partial(_scaled, weight=weight)
            self._hook = self._model.register_forward_hook(lambda *args: tree_map_only(torch.Tensor, scale, args[-1]))


def _scaled(tensor: torch.Tensor, weight: float) -> torch.Tensor:
    return _Scaled.apply(tensor, weight) if tensor.requires_grad else tensor  # type: ignore[no-untyped-call]


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, weight: float) -> torch.Tensor:
        ctx.weight = weight
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * ctx.weight, None
