"""What the modes in which each rank trains on its own have in common."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from farandole.exceptions import UsageError
from farandole.ranks.training.sync.figures import Figures
from farandole.ranks.training.sync.modes import Sync
from farandole.ranks.training.sync.statistics import BatchStatistics
from farandole.ranks.training.sync.vectors import ParameterVector
from farandole.ranks.world import collectives, world


class Training(ABC):
    """Exchanges parameters before and after the steps of an optimizer.

    The hooks on the optimizer hold this object, which must not hold the optimizer.

    Attributes:
        steps: optimizer steps of this rank so far.
        stepped: when the last of them ended, as `time.perf_counter` says.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, mode: Sync) -> None:
        self.steps = 0
        self.stepped = 0.0
        self._mode = mode
        self._vector = ParameterVector(one for group in optimizer.param_groups for one in group["params"])
        self._statistics = BatchStatistics(model)
        self._figures = Figures()
        self._world: int | None = None
        self._finished = 0
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def close(self) -> None:
        """Do nothing in further steps of the optimizer."""
        for hook in self._hooks:
            hook.remove()

    def average_now(self, batches: Iterable[Any] | None = None) -> None:
        """Exchange the parameters as they are now, and wait for the result.

        If there was no step since the last time, or since a world was formed, there is nothing to exchange. If there
        are ``batches``, recompute the statistics of batch normalization from them afterwards. All ranks must call this
        method, after the same step if their parameters are to be equal afterwards.
        """
        if self._world == world.current().times_left and self.steps != self._finished:
            self._finish()
            self._finished = self.steps
            self._figures.show(self._mode)
        if batches is not None:
            self._recompute_statistics(batches)

    def skip_step(self, optimizer: Optimizer) -> None:
        """Count a step that was left out on this rank, because its gradients were too large for half precision.

        Other ranks have taken the step, so this rank has to take part in their exchanges.
        """
        self._before_step(optimizer)
        self._after_step(optimizer)

    @abstractmethod
    def _enter_world(self) -> None:
        """Begin to exchange in a world that has been formed. Exchanges of earlier worlds do not end any more."""

    @abstractmethod
    def _exchange_if_due(self, optimizer: Optimizer) -> None:
        """Start or end an exchange after a step, if it is time."""

    @abstractmethod
    def _finish(self) -> None:
        """Exchange the parameters as they are now, and wait for the result."""

    def _recompute_statistics(self, batches: Iterable[Any]) -> None:
        self._statistics.recompute(batches)

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        self._check_parameters(optimizer)
        left = world.current().times_left
        if self._world != left:
            self._figures = Figures()
            self._enter_world()
            self._world = left
        self._figures.begin_step()

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.steps += 1
        self.stepped = time.perf_counter()
        figures = self._figures  # those of the next steps may be others
        self._exchange_if_due(optimizer)
        if figures.end_step():
            figures.show(self._mode)

    def _check_parameters(self, optimizer: Optimizer) -> None:
        """Raise UsageError if the optimizer trains other parameters than those that are averaged."""
        if added := self._vector.lacks(one for group in optimizer.param_groups for one in group["params"]):
            raise UsageError(
                f"the optimizer trains {added} more parameters than at fd.prepare, which would not be averaged; call "
                "fd.prepare again after add_param_group or requires_grad_."
            )

    def _agree(self, **own: Any) -> list[dict[str, Any]]:
        """Return the values of all ranks, ordered by rank.

        Raises:
            UsageError: the parameters of the ranks are not equal.
        """
        row = {"parameters": self._vector.digest(), **own}
        each: list[dict[str, Any]] = [json.loads(one) for one in collectives.gather_bytes(json.dumps(row).encode())]
        if len({one["parameters"] for one in each}) > 1:
            raise UsageError(
                "the ranks have different parameters, so their changes cannot be averaged. Load a checkpoint before "
                "fd.prepare, and call fd.prepare in each cell that continues a training."
            )
        return each
