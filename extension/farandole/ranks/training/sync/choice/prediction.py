"""Predicts how fast ranks train in each mode, from the time of a step and of an average. Does not import torch.

With ``every`` steps of ``c`` seconds between two averages that take ``t`` seconds, of which ``delay`` steps hide
``delay * c``, the efficiency is ``every * c / (every * c + pause + max(0, t - delay * c))``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from farandole.ranks.training.sync.choice import gaps
from farandole.ranks.training.sync.modes import PAYLOADS, Asynchronous, Local, default_delay

TARGET = 0.95
"""The efficiency that a chosen mode should have."""
AIM = 0.97
"""The predicted efficiency of a chosen mode. What is computed beside the training slows it down a little, which is not
predicted."""
SLOWER = 1.15
"""The factor by which `choose` lengthens the measured averages, because the speed of networks varies."""
LONGEST_INTERVAL = 64
SHOWN_INTERVALS = (4, 16, 64)
"""Intervals of the mode ``local`` that users see predictions for."""
BITS = {"fp32": 32, "fp16": 16, "int8": 8, "int4": 4}
GATHERED = ("int8", "int4")
"""Payloads that cannot be added on their way, so that each rank receives those of all ranks."""


class Overhead(NamedTuple):
    """The seconds that a rank computes for an average.

    Attributes:
        pause: for this time, the training stops.
        encode: before the rank sends. With a delay of more than a step, this is done beside the next step, and the rank
            sends after it.
        decode: after the rank has received, beside the training.
    """

    pause: float
    encode: float = 0.0
    decode: float = 0.0

    @property
    def total(self) -> float:
        """All of these seconds."""
        return self.pause + self.encode + self.decode


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What a prediction needs to know.

    Attributes:
        step: seconds that a rank computes for a step.
        all_reduce: seconds of an all-reduce of the parameters in single precision, if no rank waits for another.
        ranks: number of ranks.
        overheads: what a rank computes for an average, by payload.
        latency: seconds of an all-reduce of one number. A smaller payload does not shorten this part of an average.
    """

    step: float
    all_reduce: float
    ranks: int
    overheads: Mapping[str, Overhead]
    latency: float = 0.0

    def average(self, payload: str) -> float:
        """Return the seconds that an average with this payload spends on the network.

        A ring moves ``2 (K - 1) / K`` times the payload for K ranks, and gathering moves ``K - 1`` times the payload.
        """
        return self.transfer(BITS[payload] / 32 * (self.ranks / 2 if payload in GATHERED else 1))

    def transfer(self, share: float) -> float:
        """Return how many seconds an all-reduce of this share of the parameters takes, in single precision."""
        latency = min(self.latency, self.all_reduce)
        return latency + share * (self.all_reduce - latency)

    def efficiency(self, *, every: int, delay: int, payload: str) -> float:
        """Return the speed of this mode as a fraction of the speed of ranks that do not communicate, from 0 to 1."""
        computing = every * self.step
        return computing / (computing + self.stall(delay=delay, payload=payload))

    def stall(self, *, delay: int, payload: str) -> float:
        """Return the seconds for which an average holds up the training."""
        overhead = self.overheads[payload]
        received = self.average(payload) + overhead.decode
        if overhead.encode and delay > 1:
            late = max(0.0, overhead.encode - self.step)
            return overhead.pause + late + max(0.0, received - (delay - 1) * self.step)
        return overhead.pause + overhead.encode + max(0.0, received - delay * self.step)


def slowest(each: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Overhead]:
    """Return the largest overheads of all ranks, by payload. Each is a sequence as `Overhead`."""
    return {name: Overhead(*map(max, zip(*(own[name] for own in each), strict=True))) for name in each[0]}


def choose(conditions: Conditions, aim: float = AIM) -> Local:
    """Return the mode with the most frequent averages that has the efficiency ``aim``, or else the fastest mode.

    Averages are assumed to take `SLOWER` times as long as measured. Only modes whose published
    gap in accuracy is small enough are considered. See `gaps.within_limit`.
    Of modes with the same interval, the one with the least delay is chosen, and then the one with the most precise
    payload, because a late average costs more accuracy than a rounded one.
    """
    conditions = replace(conditions, all_reduce=SLOWER * conditions.all_reduce, latency=SLOWER * conditions.latency)
    rated = [(_efficiency(conditions, mode), mode) for mode in _candidates() if gaps.within_limit(mode)]
    for efficiency, mode in rated:
        if efficiency >= aim:
            return mode
    return max(rated, key=lambda pair: pair[0])[1]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The predicted speed of a mode.

    Attributes:
        mode: the argument of ``fd.prepare``.
        average: seconds that an average, or an exchange of the mode ``asynchronous``, spends on the network.
        bytes_per_step: bytes that a rank sends in a step, as a mean, rounded up.
        step: seconds of a step, as a mean.
        efficiency: the speed as a fraction of the speed of ranks that do not communicate, from 0 to 1.
        chosen: whether ``fd.sync.auto()`` would choose this mode.
    """

    mode: str
    average: float
    bytes_per_step: int
    step: float
    efficiency: float
    chosen: bool = False


def predictions(conditions: Conditions, *, forward: float, size: int) -> list[Prediction]:
    """Return the predicted speed of the modes that users choose from, and of the one that ``auto`` would choose.

    ``forward`` is the part of a step's seconds before its backward pass, during which nothing can be sent in the modes
    ``step`` and ``compressed``. ``size`` is the number of bytes of the parameters in single precision.
    """
    chosen = choose(conditions)
    modes = {Local(every=every, delay=default_delay(every)) for every in SHOWN_INTERVALS} | {chosen}
    # A rank without a GPU converts its gradients before and after the all-reduce. On a GPU, both times are 0.
    converting = conditions.overheads["fp16"].encode + conditions.overheads["fp16"].decode
    return [
        _after_each_step(conditions, 'sync="step"', "fp32", forward, size),
        _after_each_step(conditions, 'sync=fd.sync.compressed("fp16")', "fp16", forward + converting, size),
        *(
            replace(_beside(conditions, mode, size), chosen=mode == chosen)
            for mode in sorted(modes, key=lambda mode: mode.every)
        ),
        _beside(conditions, Asynchronous(), size),
    ]


def _after_each_step(conditions: Conditions, text: str, payload: str, alone: float, size: int) -> Prediction:
    """Return the prediction for a mode that averages gradients.

    ``alone`` is the part of a step, in seconds, that does not overlap with communication.
    """
    average = conditions.average(payload)
    step = max(conditions.step, alone + average)
    return Prediction(
        mode=text,
        average=average,
        bytes_per_step=_sent(payload, conditions.ranks, size),
        step=step,
        efficiency=conditions.step / step,
    )


def _beside(conditions: Conditions, mode: Local | Asynchronous, size: int) -> Prediction:
    """Return the prediction for a mode in which ranks train while their parameters are sent."""
    if isinstance(mode, Local):
        average = conditions.average(mode.payload)
        stall = conditions.stall(delay=mode.delay, payload=mode.payload)
    else:
        # The link of rank 0 carries the changes of all other ranks in one direction, as if it gathered them, and then
        # the answers in the other.
        average = conditions.transfer(BITS[mode.payload] / 32 * conditions.ranks)
        stall = conditions.overheads[mode.payload].total + max(0.0, average - mode.every * conditions.step)
    step = conditions.step + stall / mode.every
    return Prediction(
        mode=_argument(mode),
        average=average,
        bytes_per_step=ceil(_sent(mode.payload, conditions.ranks, size) / mode.every),
        step=step,
        efficiency=conditions.step / step,
    )


def bytes_sent(payload: str, ranks: int, size: int) -> int:
    """Return the bytes that a rank sends for an average of ``size`` encoded bytes. See `Conditions.average`."""
    return round(size * (ranks - 1 if payload in GATHERED else 2 * (ranks - 1) / ranks))


def _sent(payload: str, ranks: int, size: int) -> int:
    """Return the bytes that a rank sends for an average of parameters with ``size`` bytes in single precision."""
    return bytes_sent(payload, ranks, size * BITS[payload] // 32)


def _argument(mode: Local | Asynchronous) -> str:
    """Return the argument of ``fd.prepare`` for a mode, without the values that are the defaults."""
    delay = f", delay={mode.delay}" if isinstance(mode, Local) and mode.delay != default_delay(mode.every) else ""
    payload = "" if mode.payload == type(mode).payload else f', payload="{mode.payload}"'
    return f"sync=fd.sync.{mode.name}(every={mode.every}{delay}{payload})"


def _candidates() -> Iterator[Local]:
    for every in range(1, LONGEST_INTERVAL + 1):
        for delay in range(default_delay(every) + 1):
            for payload in PAYLOADS:
                yield Local(every=every, delay=delay, payload=payload)


def _efficiency(conditions: Conditions, mode: Local) -> float:
    return conditions.efficiency(every=mode.every, delay=mode.delay, payload=mode.payload)
