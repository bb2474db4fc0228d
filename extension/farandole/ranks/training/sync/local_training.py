"""The mode ``local`` of ``fd.prepare``: averages parameters between the steps of an optimizer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Any

from farandole.ranks import context
from farandole.ranks.training.sync.averager import Average, Averager
from farandole.ranks.training.sync.choice.trial import Trial
from farandole.ranks.training.sync.figures import Figures
from farandole.ranks.training.sync.modes import Auto, Local
from farandole.ranks.training.sync.training import Training
from farandole.ranks.world import collectives

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

LONGEST_FACTOR = 16
"""How many times longer than ``every`` an interval of the schedule ``quadratic`` becomes."""
HIGHEST_RATE = "farandole_highest_lr"
TRIED = Local(every=1, delay=0, payload="fp32", warmup=0)
"""The mode in which ranks train while they measure."""

_numbers = count()


class LocalTraining(Training):
    """Averages the parameters of all ranks every few steps.

    All ranks make the same decisions, because these depend only on the number of steps and on what ranks agree on.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, mode: Local | Auto) -> None:
        super().__init__(model, optimizer, mode)
        self._chooses = isinstance(mode, Auto)
        self._trial: Trial | None = None
        self._mode: Local = mode if isinstance(mode, Local) else TRIED
        self._averager = Averager(self._vector, self._mode.payload, next(_numbers))
        self._pending: Average | None = None
        self._last = 0
        self._every = self._mode.every
        self._highest_rate = 0.0

    def _finish(self) -> None:
        """Make the parameters and the statistics of batch normalization equal on all ranks."""
        if context.size() > 1:
            if not self._pending_is_of_now():
                self._apply_pending()
            self._average_and_wait()
            self._statistics.pool(self._averager.number)

    def _recompute_statistics(self, batches: Iterable[Any]) -> None:
        super()._recompute_statistics(batches)
        if context.size() > 1:
            self._statistics.pool(self._averager.number)

    def _enter_world(self) -> None:
        self._pending = None
        self._agree_on_steps()
        if self._chooses:
            # Another world may have another network, and another number of ranks.
            self._use(TRIED)
            self._trial = Trial()
        self._averager.restart()

    def _agree_on_steps(self) -> None:
        """Continue from the number of steps of the rank with the most steps, which a new rank does not know."""
        each = self._agree(steps=self.steps, rate=self._highest_rate, number=self._averager.number)
        newest = max(each, key=lambda one: one["steps"])
        self.steps = self._last = newest["steps"]
        self._highest_rate = newest["rate"]
        self._averager.number = newest["number"]
        self._every = self._mode.every

    def _use(self, mode: Local) -> None:
        self._trial, self._mode, self._every = None, mode, mode.every
        self._averager.payload = mode.payload

    def _exchange_if_due(self, optimizer: Optimizer) -> None:
        self._note_rate(optimizer)
        if context.size() == 1:
            self._last = self.steps
        elif self._trial is not None:
            self._continue_trial(self._trial)
        else:
            self._average_if_due(optimizer)

    def _average_if_due(self, optimizer: Optimizer) -> None:
        if self._pending is not None:
            self._continue(self._pending)
        due = self._pending is None and self.steps - self._last >= self._every
        if due and self._mode.schedule == "quadratic":
            # The learning rates may differ, for example if they depend on the loss of each rank.
            own = json.dumps(self._interval(optimizer)).encode()
            with self._figures.waiting(0):
                self._every = json.loads(collectives.broadcast_bytes(own, root=0))
        if self.steps <= self._mode.warmup or (due and self._mode.delay == 0):
            self._apply_pending()
            self._average_and_wait()
        elif due:
            self._pending = self._start(beside=self._sends_later)
            if not self._sends_later:
                with self._figures.waiting(0):
                    self._send(self._pending, beside=self._averager.works_beside)
        if self.steps == self._mode.warmup:
            self._figures = Figures()  # the warm-up waits and sends more than all other steps

    def _continue_trial(self, trial: Trial) -> None:
        trial.time(self._average_and_wait)
        if trial.complete:
            self._use(trial.choose(self._averager.reference))
            self._figures = Figures()

    def _average_and_wait(self) -> None:
        average, self._pending = self._pending or self._start(beside=False), None
        with self._figures.waiting(0):
            self._send(average, beside=False)
            self._averager.apply_at_once(average)

    def _pending_is_of_now(self) -> bool:
        """Return whether the average that is in progress is one of the parameters as they are now, on all ranks.

        Then no other is needed. A user may have changed parameters after the last step.
        """
        if self._pending is None or self._pending.step < self.steps:
            return False
        own = bytes([self._averager.is_of_now(self._pending)])
        return all(each == b"\x01" for each in collectives.gather_bytes(own))

    @property
    def _sends_later(self) -> bool:
        """Whether this rank encodes what it sends beside the next step, and sends it after that step."""
        return self._mode.delay > 1 and self._averager.works_beside

    def _note_rate(self, optimizer: Optimizer) -> None:
        """Keep the highest rate, also in the state of the optimizer, from which a later run continues."""
        if self._mode.schedule == "quadratic":
            group = optimizer.param_groups[0]
            self._highest_rate = max(self._highest_rate, group.get(HIGHEST_RATE, 0.0), _rate(optimizer))
            group[HIGHEST_RATE] = self._highest_rate

    def _interval(self, optimizer: Optimizer) -> int:
        """Return the interval of the schedule ``quadratic`` at the current learning rate."""
        rate = _rate(optimizer)
        factor = (self._highest_rate / (2 * rate)) ** 2 if rate > 0 else float(LONGEST_FACTOR)
        return int(self._mode.every * min(max(1.0, factor), LONGEST_FACTOR))

    def _start(self, *, beside: bool) -> Average:
        self._last = self.steps
        return self._averager.start(self.steps, beside=beside)

    def _send(self, average: Average, *, beside: bool) -> None:
        self._figures.sent += self._averager.send(average, beside=beside)

    def _continue(self, average: Average) -> None:
        """Send what was encoded during the last step, or apply an average after its delay."""
        if self.steps - average.step >= self._mode.delay:
            self._apply_pending()
        elif average.receive is None:
            with self._figures.waiting(0):
                self._send(average, beside=True)

    def _apply_pending(self) -> None:
        if self._pending is not None:
            average, self._pending = self._pending, None
            with self._figures.waiting(self.steps - average.step):
                if average.receive is None:
                    self._send(average, beside=False)
                self._averager.apply(average)


def _rate(optimizer: Optimizer) -> float:
    return max(float(group["lr"]) for group in optimizer.param_groups)
