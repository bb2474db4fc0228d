"""The accuracy that modes of ``fd.sync`` cost, as docs/explanation/slow-networks.md publishes it. Imports no torch.

``fd.sync.auto`` reads this table. It has only what has been measured. After `make bench-network`, the gaps in
bench/results.json belong here and on that page. After 370 steps, as the page says, gaps were up to 2.3 points.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from farandole.ranks.training.sync.modes import PAYLOADS, Local

LIMIT_POINTS = 2.0
"""The largest gap of a mode that ``fd.sync.auto`` chooses."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A measured gap.

    Attributes:
        mode: the mode. Its warm-up and its schedule do not count.
        points: mean test accuracy of the mode ``step`` minus that of this mode, in percentage points.
        source: where the figure comes from.
    """

    mode: Local
    points: float
    source: str


CONTRACT = "tests/contract/test_sync.py: same parameters as in mode `step`, with stochastic gradient descent"
BENCH = "make bench-network: 36 epochs of 3,000 images of CINIC-10 on three ranks, 10 seeds"

PUBLISHED = (
    Gap(mode=Local(every=1, delay=0, payload="fp32"), points=0.0, source=CONTRACT),
    Gap(mode=Local(every=2, delay=1, payload="int4"), points=-0.2, source=BENCH),
    Gap(mode=Local(every=4, delay=0, payload="int4"), points=0.4, source=BENCH),
    Gap(mode=Local(every=4, delay=3, payload="int4"), points=-0.5, source=BENCH),
    Gap(mode=Local(every=5, delay=4, payload="int4"), points=0.0, source=BENCH),
    Gap(mode=Local(every=8, delay=6, payload="int4"), points=0.1, source=BENCH),
    Gap(mode=Local(every=16, delay=6, payload="int4"), points=-0.1, source=BENCH),
    Gap(mode=Local(every=16, delay=6, payload="fp16"), points=0.2, source=BENCH),
)
"""All measured gaps. Each mode is in it once."""


def gap(mode: Local, published: Iterable[Gap] = PUBLISHED) -> float | None:
    """Return the gap of a mode in points, or None if no published gap says anything about it.

    - A mode that has been measured has its own gap.
    - Another mode counts as the best of the measured modes that average at most as often, at most as early and at most
      as exactly, because such a mode changes the training more.
    """
    at_least = [one for one in published if _changes_at_least(one.mode, mode)]
    own = [one for one in at_least if _changes_at_least(mode, one.mode)]
    return min((one.points for one in own or at_least), default=None)


def within_limit(mode: Local) -> bool:
    """Return whether the published gap of a mode is at most `LIMIT_POINTS`."""
    points = gap(mode)
    return points is not None and points <= LIMIT_POINTS


def _changes_at_least(mode: Local, other: Local) -> bool:
    """Return whether ``mode`` changes the training at least as much as ``other`` in each respect."""
    return (
        mode.every >= other.every
        and mode.delay >= other.delay
        and PAYLOADS.index(mode.payload) >= PAYLOADS.index(other.payload)
    )
