"""Limits on the time and steps that each fault may cost, and the effects that each fault must have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.cell import Step
    from tests.chaos.soak import Hit

STOP_SECONDS = 60.0
"""Seconds without training after a rank is stopped; the driver treats it as lost after about half of them."""
NOTICED_SECONDS = 5.0
"""A network cut took effect if training paused this long or a rank was lost."""
SPARING = ("hub", "proxy", "driver", "disk")
"""The kinds of faults that stop no rank."""
GIVEN_UP = 10
"""One of this many runs may be given up, and one of fewer runs as well, unless it is the only one."""


def exceeded(hit: Hit, before: Sequence[Step], after: Sequence[Step], notices: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each violation.

    ``before`` and ``after`` are the ranks before and after the fault; ``notices`` are users' messages in between.
    """
    fault, seconds = hit.fault, hit.seconds or 0.0
    if fault.kind in SPARING and _processes(before) != _processes(after):
        yield f"{fault} has cost ranks: {_processes(before)} became {_processes(after)}"
    if fault.kind == "stop" and seconds > STOP_SECONDS:
        yield f"no rank trained for {seconds:.0f} s after {fault}"
    if fault.kind == "cut" and seconds < NOTICED_SECONDS and not any("was lost" in text for text in notices):
        yield f"nothing came of {fault}"


def too_many(given_up: int, runs: int) -> Iterator[str]:
    """Yield a sentence if more runs than allowed were given up."""
    if given_up > max(1, runs // GIVEN_UP) or given_up == runs:
        yield f"{given_up} of {runs} runs were given up"


def _processes(ranks: Sequence[Step]) -> list[tuple[str, int]]:
    """Return the worker and the process id of each rank, sorted."""
    return sorted((step.worker, step.pid) for step in ranks)
