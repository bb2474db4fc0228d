"""The model that ``fd.pipeline`` returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from farandole.exceptions import UsageError
from farandole.ranks import context
from farandole.ranks.world import world

Tensors = tuple[torch.Tensor, ...]


class Runner(Protocol):
    """Interface of what computes the steps of a model."""

    def step(self, inputs: Tensors, target: torch.Tensor) -> torch.Tensor:
        """Add the gradients of the mean loss of a batch, and return that loss."""

    def forward(self, inputs: Tensors) -> Any:
        """Return what the model returns for a batch, without gradients."""


class Pipeline(nn.Module):
    """A model of which each rank has a stage. Its parameters, buffers and state are those of this rank's stage.

    `step` and calls of the model are collectives: all ranks make them together, with the same batch.

    Args:
        module (torch.nn.Module): what this rank has of the model.
        runner: computes the steps.
        microbatches (int): the number of microbatches.
        inputs (int): the number of inputs of the model.
        shared (list): the names of each parameter that several stages have.
    """

    def __init__(
        self,
        module: nn.Module,
        runner: Runner,
        *,
        microbatches: int,
        inputs: int,
        shared: Iterable[Collection[str]] = (),
    ) -> None:
        super().__init__()
        self.module = module
        self.training = module.training
        self._runner = runner
        self._microbatches = microbatches
        self._inputs = inputs
        self.shared = list(shared)
        self._home = _home()

    def step(self, x: torch.Tensor | Sequence[torch.Tensor], y: torch.Tensor) -> torch.Tensor:
        """Compute the loss of a batch and add its gradients to those of the parameters, as ``loss.backward()`` does.

        Args:
            x (torch.Tensor or tuple): the inputs, each with the samples as its first dimension.
            y (torch.Tensor): the target, with as many samples.

        Returns:
            torch.Tensor: the mean loss of the batch on all ranks, with no dimensions and without gradients.

        Raises:
            UsageError: the batch does not fit, the ranks have different batches, the model returns something other than
                tensors, or the loss is not one number.
        """
        inputs = tuple(x) if isinstance(x, list | tuple) else (x,)
        self.check_home()
        self._check_inputs(inputs)
        self._check_batch(inputs, y)
        return self._runner.step(inputs, y)

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return what the model returns for any number of samples, on all ranks, without gradients.

        Raises UsageError if an input is not a tensor, or if the model returns something other than tensors.
        """
        self.check_home()
        self._check_inputs(inputs)
        with torch.no_grad():
            return self._runner.forward(inputs)

    def check_home(self) -> None:
        """Raise UsageError if the ranks have left the world in which `fd.pipeline` divided the model."""
        if self._home != _home():
            raise UsageError(
                "fd.pipeline: the ranks have changed, or a cell has failed, was interrupted or lost a rank since the "
                "model was cut; create the model again before fd.pipeline, and continue with fd.checkpoint."
            )

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of this rank's stage, without the prefix ``module.`` in its keys."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state of this rank's stage."""
        return self.module.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the names and parameters of this rank's stage. The names are those in the whole model."""
        yield from self.module.named_parameters(*args, **kwargs)

    def _check_inputs(self, inputs: Sequence[object]) -> None:
        if len(inputs) != self._inputs:
            raise UsageError(
                f"fd.pipeline: the batch has {len(inputs)} inputs, and the model needs {self._inputs}; pass a tuple "
                "with one tensor for each argument of forward() that has no default."
            )
        for value in inputs:
            _check_tensor("x", value)

    def _check_batch(self, inputs: Tensors, target: object) -> None:
        _check_tensor("y", target)
        sizes = {tensor.shape[0] for tensor in (*inputs, target) if isinstance(tensor, torch.Tensor)}
        if len(sizes) > 1:
            raise UsageError(
                f"fd.pipeline: x and y have different numbers of samples ({', '.join(map(str, sorted(sizes)))}); they "
                "are the first dimension of each tensor."
            )
        if (samples := sizes.pop()) % self._microbatches or not samples:
            raise UsageError(
                f"fd.pipeline: a batch has {samples} samples, which do not divide into {self._microbatches} "
                "microbatches of equal size; set another number of microbatches or another batch_size, and "
                "drop_last=True in the DataLoader if only the last batch is smaller."
            )


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, torch.Tensor) or not value.dim():
        kind = "tensor without dimensions" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(
            f"fd.pipeline: {name} has a {kind}; it must be a tensor with the samples as its first dimension, or a "
            "tuple of tensors for several inputs."
        )


def _home() -> tuple[int, int, int]:
    return world.current().times_left, context.rank(), context.size()
