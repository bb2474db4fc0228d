"""Averages the parameters of ranks that train on their own (local SGD)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from farandole.ranks import context
from farandole.ranks.training.sync import exchange
from farandole.ranks.training.sync.choice.prediction import bytes_sent
from farandole.ranks.training.sync.payloads import PAYLOADS
from farandole.ranks.training.sync.vectors import ParameterVector


@dataclass(kw_only=True)
class Average:
    """An average that has been started.

    Attributes:
        step: the step after which it was started.
        encode: waits for what this rank sends.
        receive: waits until the reference is the average, or is None if nothing has been sent yet.
    """

    step: int
    encode: Callable[[], torch.Tensor]
    receive: Callable[[], None] | None = field(default=None)


class Averager:
    """Averages a model's parameters over all ranks, one average at a time.

    All ranks hold the same reference, which is the result of the last average. A rank sends the difference between its
    parameters and the reference, in the payload's precision. It adds to the next difference what rounding has lost, in
    the payload or in parameters of half precision, so that no change is lost.

    A rank without a GPU encodes and decodes in a thread beside the training. All ranks have to start their collectives
    in the same order, so `send` starts them in the training's thread. A GPU encodes and decodes between its steps.
    """

    def __init__(self, vector: ParameterVector, payload: str, number: int) -> None:
        self._vector = vector
        self.payload = payload
        """The precision in which changes are sent: ``fp32``, ``fp16``, ``int8`` or ``int4``."""
        self.number = number
        """The number of the training, which is the same on all ranks. It names the collectives."""
        self.reference = torch.empty(0)

    def restart(self) -> None:
        """Take this rank's parameters, which are equal on all ranks, as the reference."""
        # The thread of an average that was given up may still use the earlier vectors.
        self.reference = self._vector.read()
        self._lost = torch.zeros_like(self.reference)
        self._sent = torch.zeros_like(self.reference)

    @property
    def works_beside(self) -> bool:
        """Whether this rank can encode and decode beside the training."""
        return self.reference.device.type == "cpu"

    def start(self, step: int, *, beside: bool) -> Average:
        """Start an average of the current parameters. They are encoded ``beside`` the training, or else in `send`."""
        self._vector.copy_to(self._sent)
        lost, sent, reference, payload = self._lost, self._sent, self.reference, PAYLOADS[self.payload]

        def encode() -> torch.Tensor:
            """Encode the change of this rank, and keep what rounding loses."""
            lost.add_(sent - reference)
            return payload.take(lost, context.size())

        return Average(step=step, encode=exchange.beside(encode).result if beside else encode)

    def send(self, average: Average, *, beside: bool) -> int:
        """Send what an average needs, and return how many bytes this rank sends.

        All ranks call this method after the same step. What they receive is decoded ``beside`` the training or when the
        average is applied.
        """
        sent, reference, payload = self._sent, self.reference, PAYLOADS[self.payload]
        encoded, size = average.encode(), context.size()
        start = exchange.start_sum if payload.summable else exchange.start_gather
        wait = start(encoded, f"{self.number}.{self.payload}")

        def receive() -> None:
            """Set the reference to the average, and the vector that was sent to the correction of the parameters."""
            received = wait()
            # In the order of the ranks, so that all ranks round alike.
            for one in [received] if payload.summable else received:
                payload.add_to(reference, one, factor=1 / size)
            torch.sub(reference, sent, out=sent)

        average.receive = exchange.beside(receive).result if beside else receive
        return bytes_sent(self.payload, size, encoded.nbytes)

    def apply(self, average: Average) -> None:
        """Wait for ``average``, and add to the parameters the difference between the average and what was sent."""
        assert average.receive is not None
        average.receive()
        before = self._vector.read() if self._vector.rounds else None
        self._vector.add(self._sent)
        if before is not None:
            self._lost += self._sent - (self._vector.read() - before)

    def apply_at_once(self, average: Average) -> None:
        """Wait for ``average``, which has been started after the last step, and set the parameters to it.

        Afterwards the parameters of all ranks are equal to the last bit.
        """
        assert average.receive is not None
        average.receive()
        self._vector.write(self.reference)
        if self._vector.rounds:
            self._lost += self.reference - self._vector.read()

    def is_of_now(self, average: Average) -> bool:
        """Return whether ``average`` is unsent and the parameters have not changed since it was started."""
        return average.receive is None and torch.equal(self._vector.read(), self._sent)
