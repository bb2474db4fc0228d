"""Averages the parameters of ranks that train on their own (local SGD)."""

from __future__ import annotations

from collections.abc import Callable
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
        sent: this rank's parameters after that step, of shape (n,).
        mean_change: waits for the mean of the changes that the ranks have sent, of shape (n,).
    """

    step: int
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
        """How changes travel, if an average has no payload of its own."""
        self.number = number
        """A number that the averages of one training have on all ranks, and those of other trainings have not."""
        self.reference = torch.empty(0)
        self.bytes_sent = 0
        """Bytes that this rank has sent."""

    def restart(self) -> None:
        """Take this rank's parameters, which are equal on all ranks, as the reference."""
        self.reference = self._vector.read()
        self._lost = torch.zeros_like(self.reference)

    def start(self, step: int, payload: str | None = None) -> Average:
        """Start an average of the parameters as they are now."""
        sent = self._vector.read()
        change = self._send(sent - self.reference, payload or self.payload)
        return Average(step=step, sent=sent, mean_change=change)

    def apply(self, average: Average) -> None:
        """Wait for ``average``, and add to the parameters the difference between the average and what was sent."""
        self.reference += average.mean_change()
        self._vector.add(self.reference - average.sent)

    def apply_at_once(self, average: Average) -> None:
        """Wait for ``average``, which has been started after the last step, and set the parameters to it.

        Afterwards the parameters of all ranks are equal to the last bit.
        """
        self.reference += average.mean_change()
        self._vector.write(self.reference)

    def _send(self, change: torch.Tensor, name: str) -> Callable[[], torch.Tensor]:
        payload = PAYLOADS[name]
        change += self._lost
        encoded = payload.encode(change, context.size())
        self._lost = change - payload.decode(encoded, len(change)).to(change.dtype)
        self.bytes_sent += carried(name, context.size(), encoded.nbytes)
        start = exchange.start_sum if payload.summable else exchange.start_gather
        wait = start(encoded, f"{self.number}.{name}")
        return lambda: self._mean(wait(), len(change), payload)

    def _mean(self, received: torch.Tensor, count: int, payload: Payload) -> torch.Tensor:
        if payload.summable:
            return payload.decode(received, count).to(self.reference.dtype) / context.size()
        total = torch.zeros_like(self.reference)
        for row in received:  # in the order of the ranks, so that all ranks round alike
            total += payload.decode(row, count)
        return total / context.size()
