"""Predicts how fast ranks train in each mode, from the time of a step and of an average. Does not import torch.

With ``every`` steps of ``c`` seconds between two averages that take ``t`` seconds, of which ``delay`` steps hide
``delay * c``, the efficiency is ``every * c / (every * c + overhead + max(0, t - delay * c))``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from farandole.ranks.training.sync.modes import DEFAULT_DELAY, PAYLOADS, Local

TARGET = 0.95
"""The efficiency that a chosen mode should have."""
LONGEST_INTERVAL = 64
BITS = {"fp32": 32, "fp16": 16, "int8": 8, "int4": 4}
GATHERED = ("int8", "int4")
"""Payloads that cannot be added on their way, so that each rank receives those of all ranks."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a prediction needs to know.

    Attributes:
        step: seconds that a rank computes for a step.
        all_reduce: seconds of an all-reduce of the parameters in single precision, if no rank waits for another.
        ranks: number of ranks.
        overheads: seconds that a rank computes to encode and decode its parameters, by payload.
    """

    step: float
    all_reduce: float
    ranks: int
    overheads: Mapping[str, float]

    def average(self, payload: str) -> float:
        """Return the seconds that an average with this payload spends on the network.

        A ring moves ``2 (K - 1) / K`` times the payload for K ranks, and gathering moves ``K - 1`` times the payload.
        """
        share = BITS[payload] / 32
        return self.all_reduce * share * (self.ranks / 2 if payload in GATHERED else 1)

    def efficiency(self, *, every: int, delay: int, payload: str) -> float:
        """Return the speed of this mode as a fraction of the speed of ranks that do not communicate, from 0 to 1."""
        computing = every * self.step
        waiting = max(0.0, self.average(payload) - delay * self.step)
        return computing / (computing + self.overheads[payload] + waiting)


def choose(conditions: Conditions, target: float = TARGET) -> Local:
    """Return the mode with the most frequent averages that has the ``target`` efficiency, or else the fastest mode.

    Of two payloads with the same interval, the more precise one is chosen.
    """
    modes = list(_candidates())
    rated = [(_efficiency(conditions, mode), mode) for mode in modes]
    for efficiency, mode in rated:
        if efficiency >= target:
            return mode
    return max(rated, key=lambda pair: pair[0])[1]


def _candidates() -> Iterator[Local]:
    for every in range(1, LONGEST_INTERVAL + 1):
        for payload in PAYLOADS:
            yield Local(every=every, delay=min(DEFAULT_DELAY, every - 1), payload=payload)


def _efficiency(conditions: Conditions, mode: Local) -> float:
    return conditions.efficiency(every=mode.every, delay=mode.delay, payload=mode.payload)
