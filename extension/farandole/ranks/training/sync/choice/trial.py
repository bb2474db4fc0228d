"""Times the first steps of a training, to choose the mode ``local`` for the rest of it."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from farandole.ranks import context, run
from farandole.ranks.training.sync import exchange
from farandole.ranks.training.sync.choice.gaps import LIMIT_POINTS
from farandole.ranks.training.sync.choice.prediction import BITS, TARGET, Conditions, Overhead, choose, slowest
from farandole.ranks.training.sync.figures import finish_computing
from farandole.ranks.training.sync.modes import Local
from farandole.ranks.training.sync.payloads import PAYLOADS, Payload
from farandole.ranks.world import collectives
from farandole.sizes import size_text
from farandole.times import short_text

STEPS = 30
FIRST_STEPS = 10
"""Steps that are not counted, because memory is allocated and code is compiled in them."""
TRIES = 3
"""How many times the computation for an average is timed."""
LATENCIES = 5
"""How many times an all-reduce of one number is timed."""


class Trial:
    """The times of steps after each of which the ranks wait for an average in single precision."""

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._averages: list[float] = []
        self._ended: float | None = None

    @property
    def complete(self) -> bool:
        """Whether enough steps have been timed."""
        return len(self._averages) >= STEPS

    def time(self, average: Callable[[], None]) -> None:
        """Call ``average`` after a step. Record its time and the time of the step."""
        finish_computing()
        begun = time.perf_counter()
        if self._ended is not None:
            self._steps.append(begun - self._ended)
        average()
        finish_computing()
        self._ended = time.perf_counter()
        self._averages.append(self._ended - begun)

    def choose(self, parameters: torch.Tensor) -> Local:
        """Return the mode for the rest of the training, which is the same on all ranks, and tell the user.

        All ranks must call this method. ``parameters`` has the shape (n,).
        """
        own = {
            "steps": self._steps,
            "averages": self._averages,
            "overheads": overheads(parameters),
            "latency": _latency(parameters.device),
        }
        each = [json.loads(row) for row in collectives.gather_bytes(json.dumps(own).encode())]
        conditions = _conditions(each)
        mode = choose(conditions)
        if context.rank() == 0:
            run.notice(_sentence(conditions, mode, parameters.nbytes))
        return mode


def _conditions(each: list[dict[str, Any]]) -> Conditions:
    """Return the conditions of the slowest rank. The rank that comes last to an average waits only for the network."""
    averages = [min(own) for own in zip(*(rank["averages"][FIRST_STEPS:] for rank in each), strict=True)]
    computed = min(sum(own["overheads"]["fp32"]) for own in each)
    return Conditions(
        step=max(statistics.median(own["steps"][FIRST_STEPS:]) for own in each),
        all_reduce=max(0.0, statistics.median(averages) - computed),
        ranks=len(each),
        overheads=slowest([own["overheads"] for own in each]),
        latency=min(own["latency"] for own in each),
    )


def _latency(device: torch.device) -> float:
    """Return the median duration of an all-reduce of one number, in seconds. All ranks must call this function."""
    times = []
    for _ in range(LATENCIES):
        begun = _now()
        exchange.start_sum(torch.zeros(1, device=device), "latency")()
        times.append(_now() - begun)
    return statistics.median(times)


def overheads(parameters: torch.Tensor) -> dict[str, Overhead]:
    """Return what a rank computes for an average of the parameters, of shape (n,), by payload."""
    sent, lost, reference = (torch.zeros_like(parameters) for _ in range(3))
    found = {}
    for name, payload in PAYLOADS.items():
        tried = [_overhead(payload, parameters, sent, lost, reference) for _ in range(TRIES)]
        overhead = Overhead(*map(min, zip(*tried, strict=True)))
        # Only a processor encodes and decodes beside the training.
        found[name] = overhead if parameters.device.type == "cpu" else Overhead(overhead.total)
    return found


def _overhead(
    payload: Payload, parameters: torch.Tensor, sent: torch.Tensor, lost: torch.Tensor, reference: torch.Tensor
) -> Overhead:
    """Do what `Averager` does for an average. The last three vectors are those that it keeps."""
    times = [_now()]
    sent.copy_(parameters)
    times.append(_now())
    lost += sent - reference
    encoded = payload.take(lost, context.size())
    times.append(_now())
    for _ in range(1 if payload.summable else context.size()):
        payload.add_to(reference, encoded, factor=1 / context.size())
    torch.sub(reference, sent, out=sent)
    times.append(_now())
    sent += reference
    times.append(_now())
    copied, encode, decode, added = (after - before for before, after in pairwise(times))
    return Overhead(copied + added, encode, decode)


def _now() -> float:
    finish_computing()
    return time.perf_counter()


def _sentence(conditions: Conditions, mode: Local, size: int) -> str:
    interval = "after each step" if mode.every == 1 else f"every {mode.every} steps"
    late = f"{mode.delay} step{'s' if mode.delay > 1 else ''} late"
    beside = f" beside the training, {late}" if mode.delay else ""
    efficiency = conditions.efficiency(every=mode.every, delay=mode.delay, payload=mode.payload)
    slow = "" if efficiency >= TARGET else _fastest(efficiency)
    return (
        f"an average of {size_text(size)} takes {short_text(conditions.all_reduce)} here, a step "
        f"{short_text(conditions.step)}: averaging {interval} in {BITS[mode.payload]} bits{beside}{slow}"
    )


def _fastest(efficiency: float) -> str:
    return (
        f", which is the fastest mode with a published accuracy gap of at most {LIMIT_POINTS:g} points, "
        f"with {efficiency:.2f} of the speed"
    )
