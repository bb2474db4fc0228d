"""What a mode of ``fd.sync`` costs a rank: the time that it waits for the network, and the bytes that it sends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from farandole.protocol import Kind
from farandole.ranks import context
from farandole.ranks.metrics import reporter
from farandole.ranks.training.sync.modes import Sync

SECONDS_BETWEEN = 1.0


def finish_computing() -> None:
    """Wait for the computation of the GPU, which would otherwise be counted as time on the network, or the reverse.

    This does not wait for the streams of NCCL, on which an exchange may be in progress.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.current_stream().synchronize()


class Figures:
    """Adds up what a mode costs since the first step, and sends it to the driver every second.

    Attributes:
        waited: seconds that this rank has waited, or None if they are not known.
        sent: bytes that this rank has sent.
        staleness: steps between the start of the last exchange beside the training and the use of its result.
        steps: steps since the start.
    """

    def __init__(self) -> None:
        self.waited: float | None = 0.0
        self.sent = 0
        self.staleness = 0
        self.steps = 0
        self._started: float | None = None
        self._shown = 0.0

    @contextmanager
    def waiting(self, staleness: int) -> Iterator[None]:
        """Count the time of a block, in which this rank waits for an exchange that began ``staleness`` steps ago."""
        finish_computing()
        begun = time.perf_counter()
        yield
        finish_computing()
        self.waited = (self.waited or 0.0) + time.perf_counter() - begun
        self.staleness = staleness or self.staleness

    def begin_step(self) -> None:
        """Start to count time with the first step."""
        if self._started is None:
            self._started = time.perf_counter()

    def end_step(self) -> bool:
        """Count a step, and return whether the figures are to be sent, because the last ones are a second old."""
        self.steps += 1
        return time.perf_counter() - self._shown >= SECONDS_BETWEEN

    def show(self, mode: Sync) -> None:
        """Send the figures, unless there was no step."""
        if self._started is None or not self.steps:
            return
        self._shown = time.perf_counter()
        reporter.send(self.record(mode, self._shown - self._started))

    def record(self, mode: Sync, elapsed: float) -> dict[str, Any]:
        """Return a rank message with the figures of ``elapsed`` seconds. ``waiting`` is a share of them, or None."""
        return {
            "kind": Kind.SYNC,
            "rank": context.rank(),
            "time": time.time(),
            "mode": str(mode),
            "waiting": None if self.waited is None else min(1.0, self.waited / elapsed),
            "bytes_per_step": self.sent / self.steps,
            "staleness": self.staleness,
        }
