"""The schedule of faults. The same seed and kinds always give the same faults, however many of them are requested."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PER_RUN = 10
"""The number of faults in one run. The next run uses the other backend."""
MOST_STEPS = 40


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault with its target. It is injected ``steps`` steps after the run has recovered from the previous fault."""

    number: int
    kind: str
    backend: str
    rank: int
    """The target rank, or the rank whose worker is the target."""
    steps: int
    share: float
    """For the kind "disk": the fraction of a checkpoint that fits on the full disk, so that the write fails partway."""

    def __str__(self) -> str:
        where = f" {self.rank}" if self.kind in {"rank", "worker", "stop", "cut", "memory"} else ""
        return f"fault {self.number}: {self.kind}{where} ({self.backend}), after {self.steps} steps"


def schedule(seed: int, count: int, kinds: Sequence[str], backends: Sequence[str], size: int) -> list[Fault]:
    """Return ``count`` faults for runs of ``size`` ranks. Every kind occurs once before any kind is repeated."""
    source = random.Random(seed)
    order = _shuffled(source, kinds)
    return [
        Fault(
            number=number,
            kind=(kind := next(order)),
            backend=backends[number // PER_RUN % len(backends)],
            # The kind "rank" never draws rank 0, because faults of rank 0 are a separate kind.
            rank=_rank(source, kind, size),
            steps=source.randint(1, MOST_STEPS),
            share=source.random(),
        )
        for number in range(count)
    ]


def runs(faults: Sequence[Fault]) -> list[list[Fault]]:
    """Return the faults of each run, in order."""
    numbers = sorted({fault.number // PER_RUN for fault in faults})
    return [[fault for fault in faults if fault.number // PER_RUN == number] for number in numbers]


def _rank(source: random.Random, kind: str, size: int) -> int:
    drawn = source.randrange(size), source.randrange(1, size)
    return {"rank": drawn[1], "rank-0": 0}.get(kind, drawn[0])


def _shuffled(source: random.Random, kinds: Sequence[str]) -> Iterator[str]:
    while True:
        yield from source.sample(kinds, len(kinds))
