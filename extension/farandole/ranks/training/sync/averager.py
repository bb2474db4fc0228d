"""Averages the parameters of ranks that train on their own (local SGD)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from farandole.ranks import context
from farandole.ranks.training.sync import exchange
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

    def __init__(self, model: nn.Module, payload: str) -> None:
        self._vector = ParameterVector(model.parameters())
        self._payload: Payload = PAYLOADS[payload]
        self.reference = torch.empty(0)
        self.bytes_sent = 0
        """Bytes that this rank has given to collectives. How often the network carries them depends on the backend."""

    def use(self, payload: str) -> None:
        """Send further changes in this payload."""
        self._payload = PAYLOADS[payload]

    def restart(self) -> None:
        """Take this rank's parameters, which are equal on all ranks, as the reference."""
        self.reference = self._vector.read()
        self._lost = torch.zeros_like(self.reference)

    def start(self, step: int) -> Average:
        """Start an average of the parameters as they are now."""
        sent = self._vector.read()
        return Average(step=step, sent=sent, mean_change=self._send(sent - self.reference))

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

    def _send(self, change: torch.Tensor) -> Callable[[], torch.Tensor]:
        change += self._lost
        encoded = self._payload.encode(change, context.size())
        self._lost = change - self._payload.decode(encoded, len(change))
        self.bytes_sent += encoded.nbytes
        wait = exchange.start_sum(encoded) if self._payload.summable else exchange.start_gather(encoded)
        return lambda: self._mean(wait(), len(change))

    def _mean(self, received: torch.Tensor, count: int) -> torch.Tensor:
        if self._payload.summable:
            return self._payload.decode(received, count) / context.size()
        total = torch.zeros_like(self.reference)
        for row in received:  # in the order of the ranks, so that all ranks round alike
            total += self._payload.decode(row, count)
        return total / context.size()
