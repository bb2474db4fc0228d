"""The mode ``local`` of ``fd.prepare``: averages parameters between the steps of an optimizer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from torch import nn
from torch.optim import Optimizer

from farandole.exceptions import UsageError
from farandole.ranks.training.sync.averager import Average, Averager
from farandole.ranks.training.sync.figures import Figures
from farandole.ranks.training.sync.modes import Auto, Local
from farandole.ranks.training.sync.statistics import BatchStatistics
from farandole.ranks.training.sync.trial import Trial
from farandole.ranks.world import collectives, world


class LocalTraining:
    """Decides before and after each step of an optimizer what to do.

    Decisions depend only on the number of steps and on the learning rate, which are the same on all ranks.

    Attributes:
        steps: optimizer steps so far.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, mode: Local | Auto) -> None:
        self.steps = 0
        self._figures = Figures()
        self._trial = Trial() if isinstance(mode, Auto) else None
        self._mode = mode if isinstance(mode, Local) else Local(every=1, delay=0, payload="fp32")
        self._averager = Averager(model, self._mode.payload)
        self._statistics = BatchStatistics(model)
        shapes = [list(parameter.shape) for parameter in model.parameters()]
        self._shapes = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()
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
        self._average_and_wait()
        self._statistics.pool()
        self._figures.show(self._mode)

    def _before_step(self, *_: Any) -> None:
        self._figures.begin_step()
        left = world.current().times_left
        if self._world != left:
            # An average that was started in an earlier world does not end any more.
            self._pending = None
            self._agree()
            self._averager.restart()
            self._world = left

    def _agree(self) -> None:
        """Use the number of steps and the mode of the rank with the most steps, which a new rank does not know.

        Raises:
            UsageError: the models of the ranks have parameters of different shapes.
        """
        mode = None if self._trial else asdict(self._mode)
        own = {"steps": self.steps, "rate": self._highest_rate, "mode": mode, "shapes": self._shapes}
        each = [json.loads(row) for row in collectives.gather_bytes(json.dumps(own).encode())]
        if len({one["shapes"] for one in each}) > 1:
            raise UsageError("fd.prepare: the ranks have different models; create the same model on all ranks.")
        newest = max(each, key=lambda one: one["steps"])
        self.steps = self._last = newest["steps"]
        self._highest_rate = newest["rate"]
        if newest["mode"] is None:
            self._trial = Trial()
        else:
            self._use(Local(**newest["mode"]))

    def _use(self, mode: Local) -> None:
        self._trial, self._mode = None, mode
        self._averager.use(mode.payload)

    def _after_step(self, optimizer: Optimizer, *_: Any) -> None:
        self.steps += 1
        self._average_if_due(optimizer)
        self._figures.sent = self._averager.bytes_sent
        self._figures.end_step(self._mode)

    def _average_if_due(self, optimizer: Optimizer) -> None:
        if self._trial is not None:
            self._continue_trial(self._trial)
            return
        if self._pending is not None and self.steps - self._pending.step >= self._mode.delay:
            self._apply_pending()
        due = self._pending is None and self.steps - self._last >= self._interval(optimizer)
        if self.steps <= self._mode.warmup or (due and self._mode.delay == 0):
            self._apply_pending()
            self._average_and_wait()
        elif due:
            self._pending = self._start()

    def _continue_trial(self, trial: Trial) -> None:
        trial.time(self._average_and_wait)
        if trial.complete:
            self._use(trial.choose(self._averager.reference))

    def _average_and_wait(self) -> None:
        average = self._start()
        with self._figures.waiting(self.steps - average.step):
            self._averager.apply_at_once(average)

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
            with self._figures.waiting(self.steps - average.step):
                self._averager.apply(average)
