"""Averages the parameters of ranks that train on their own (local SGD)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from farandole.ranks import context
from farandole.ranks.training.sync import exchange
from farandole.ranks.training.sync.choice.prediction import carried
from farandole.ranks.training.sync.payloads import PAYLOADS, Payload
from farandole.ranks.training.sync.vectors import ParameterVector


@dataclass(frozen=True, kw_only=True)
class Average:
    """An average that has been started.

    Attributes:
        step: the step after which it was started.
        size: bytes that this rank sends.
        sent: this rank's parameters after that step, of shape (n,).
        mean_change: waits for the mean of the changes that the ranks have sent, of shape (n,).
    """

    step: int
    size: int
    sent: torch.Tensor
    mean_change: Callable[[], torch.Tensor]


class Averager:
    """Starts averages of a model's parameters, and applies them.

    All ranks hold the same reference, which is the result of the last average. A rank sends the difference between its
    parameters and the reference, in the payload's precision. It adds what rounding has lost to what it sends next, so
    that no change is lost.
    """

    def __init__(self, vector: ParameterVector, payload: str, number: int) -> None:
        self._vector = vector
        self.payload = payload
        """How changes travel."""
        self.number = number
        """A number that the averages of one training have on all ranks, and those of other trainings have not."""
        self.reference = torch.empty(0)

    def restart(self) -> None:
        """Take this rank's parameters, which are equal on all ranks, as the reference."""
        self.reference = self._vector.read()
        self._lost = torch.zeros_like(self.reference)

    def start(self, step: int) -> Average:
        """Start an average of the parameters as they are now."""
        sent, payload = self._vector.read(), PAYLOADS[self.payload]
        change = sent - self.reference
        change += self._lost
        encoded = payload.encode(change, context.size())
        payload.add_to(change, encoded, factor=-1)
        self._lost = change
        size = carried(self.payload, context.size(), encoded.nbytes)
        return Average(step=step, size=size, sent=sent, mean_change=self._send(encoded, payload))

    def apply(self, average: Average) -> None:
        """Wait for ``average``, and add to the parameters the difference between the average and what was sent."""
        self.reference += average.mean_change()
        self._vector.add(torch.sub(self.reference, average.sent, out=average.sent))

    def apply_at_once(self, average: Average) -> None:
        """Wait for ``average``, which has been started after the last step, and set the parameters to it.

        Afterwards the parameters of all ranks are equal to the last bit.
        """
        self.reference += average.mean_change()
        self._vector.write(self.reference)

    def _send(self, encoded: torch.Tensor, payload: Payload) -> Callable[[], torch.Tensor]:
        name = f"{self.number}.{self.payload}"
        if payload.summable:
            wait = exchange.start_sum(encoded, name)
            return lambda: self._mean([wait()], payload)
        wait = exchange.start_gather(encoded, name)
        return lambda: self._mean(wait(), payload)

    def _mean(self, received: Iterable[torch.Tensor], payload: Payload) -> torch.Tensor:
        total = torch.zeros_like(self.reference)
        for one in received:  # in the order of the ranks, so that all ranks round alike
            payload.add_to(total, one)
        return total.div_(context.size())
