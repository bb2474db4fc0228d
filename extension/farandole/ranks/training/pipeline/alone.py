"""Computes the steps of a model on one rank, as a pipeline would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from farandole.exceptions import UsageError
from farandole.ranks.training.pipeline.model import Tensors

Loss = Callable[[Any, torch.Tensor], torch.Tensor]


class Alone:
    """Computes one microbatch after another with the whole model."""

    def __init__(self, module: nn.Module, loss_fn: Loss, microbatches: int) -> None:
        self._module = module
        self._loss_fn = loss_fn
        self._microbatches = microbatches

    def step(self, inputs: Tensors, target: torch.Tensor) -> torch.Tensor:
        """Add the gradients of the mean loss of a batch, and return that loss."""
        losses = []
        for *own, wanted in zip(*(tensor.chunk(self._microbatches) for tensor in (*inputs, target)), strict=True):
            output = self._module(*own)
            check_output(output)
            loss = self._loss_fn(output, wanted)
            check_loss(loss)
            loss = loss / self._microbatches
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    def forward(self, inputs: Tensors) -> Any:
        """Return what the model returns for a batch, without gradients."""
        return self._module(*inputs)


def check_output(output: object) -> None:
    """Raise UsageError if what a model returns is neither a tensor nor a tuple of tensors."""
    values = output if isinstance(output, list | tuple) else [output]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        raise UsageError(
            f"fd.pipeline: the model returns a {type(output).__name__}, and a pipeline needs a tensor or a tuple of "
            "tensors; return the tensors that loss_fn uses."
        )


def check_loss(loss: object) -> None:
    """Raise UsageError if a loss is not one number."""
    if not isinstance(loss, torch.Tensor) or loss.dim():
        found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise UsageError(
            f"fd.pipeline: loss_fn returns {found}; it must return one number as a tensor, the mean over the samples, "
            "e.g. torch.nn.functional.cross_entropy."
        )
