"""The mode ``local`` of ``fd.prepare``: averages parameters between the steps of an optimizer."""

from __future__ import annotations

import time
import weakref
from typing import Any

from torch import nn
from torch.optim import Optimizer

from farandole.ranks.training.sync.averager import Average, Averager
from farandole.ranks.training.sync.modes import Local
from farandole.ranks.training.sync.statistics import BatchStatistics
from farandole.ranks.world import world

_attached: weakref.WeakKeyDictionary[Optimizer, LocalTraining] = weakref.WeakKeyDictionary()


def attach(model: nn.Module, optimizer: Optimizer, mode: Local) -> LocalTraining:
    """Average the parameters of ``model`` between the steps of ``optimizer``. Replaces an earlier call's averages."""
    detach(optimizer)
    training = _attached[optimizer] = LocalTraining(model, optimizer, mode)
    return training


def detach(optimizer: Optimizer) -> None:
    """Stop the averages between the steps of ``optimizer``, if there are any."""
    if (training := _attached.pop(optimizer, None)) is not None:
        training.remove_hooks()


def average_now(optimizer: Optimizer) -> None:
    """Wait for an average of the parameters that ``optimizer`` trains, if ranks train them on their own.

    All ranks must call this function after the same step.
    """
    if (training := _attached.get(optimizer)) is not None:
        training.average_now()


class LocalTraining:
    """Decides before and after each step of an optimizer what to do.

    Decisions depend only on the number of steps and on the learning rate, which are the same on all ranks.

    Attributes:
        steps: optimizer steps so far.
        waited: seconds that this rank has waited for averages.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, mode: Local) -> None:
        self.steps = 0
        self.waited = 0.0
        self._mode = mode
        self._averager = Averager(model, mode.payload)
        self._statistics = BatchStatistics(model)
        self._world: int | None = None
        self._pending: Average | None = None
        self._last = 0
        self._highest_rate = 0.0
        # The hooks must not hold the optimizer, which holds them. They receive it as an argument.
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

    def remove_hooks(self) -> None:
        """Do nothing in further steps of the optimizer."""
        for hook in self._hooks:
            hook.remove()

    def average_now(self) -> None:
        """Wait for an average of the parameters as they are now. All ranks must call this method after the same step.

        Afterwards all ranks have equal parameters and equal statistics of batch normalization.
        """
        if self._world != world.current().times_left:
            return  # there was no step in this world, so the parameters are equal
        self._apply_pending()
        average = self._start()
        with _Timer(self):
            self._averager.apply_at_once(average)
            self._statistics.pool()

    def _before_step(self, *_: Any) -> None:
        left = world.current().times_left
        if self._world != left:
            # An average that was started in an earlier world does not end any more.
            self._pending = None
            self.steps = self._last = self._averager.restart(self.steps)
            self._world = left

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.steps += 1
        if self._pending is not None and self.steps - self._pending.step >= self._mode.delay:
            self._apply_pending()
        due = self._pending is None and self.steps - self._last >= self._interval(optimizer)
        if self.steps <= self._mode.warmup or (due and self._mode.delay == 0):
            self.average_now()
        elif due:
            self._pending = self._start()

    def _interval(self, optimizer: Optimizer) -> int:
        rate = max(float(group["lr"]) for group in optimizer.param_groups)
        self._highest_rate = max(self._highest_rate, rate)
        if self._mode.schedule == "fixed" or rate <= 0:
            return self._mode.every
        return int(self._mode.every * max(1.0, (self._highest_rate / (2 * rate)) ** 2))

    def _start(self) -> Average:
        self._last = self.steps
        return self._averager.start(self.steps)

    def _apply_pending(self) -> None:
        if self._pending is not None:
            average, self._pending = self._pending, None
            with _Timer(self):
                self._averager.apply(average)


class _Timer:
    """Adds the time of a block to the seconds that a rank has waited."""

    def __init__(self, training: LocalTraining) -> None:
        self._training = training

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._training.waited += time.perf_counter() - self._started
