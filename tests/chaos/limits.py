"""Limits on what each fault may cost a run, and the effects that each fault must have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.chaos.cell import Step
    from tests.chaos.soak import Hit

STOP_SECONDS = 60.0
"""The longest pause of the training, in seconds, after a rank is suspended. The driver treats the rank as lost after
about half of this time.
"""
NOTICED_SECONDS = 5.0
"""A network cut has taken effect if the training paused for this many seconds, or if a rank was lost."""
SPARING = ("hub", "proxy", "driver", "disk")
"""The kinds of faults that must not end any rank."""
GIVEN_UP = 10
"""One in this many runs may end early. If there are fewer runs, one may end early, unless it is the only run."""


def exceeded(hit: Hit, before: Sequence[Step], after: Sequence[Step], notices: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each violation.

    ``before`` and ``after`` hold the last step of each rank before and after the fault. ``notices`` holds the messages
    that the user has received in between.
    """
    fault, seconds = hit.fault, hit.seconds or 0.0
    if fault.kind in SPARING and _processes(before) != _processes(after):
        yield f"{fault} has cost ranks: {_processes(before)} became {_processes(after)}"
    if fault.kind == "stop" and seconds > STOP_SECONDS:
        yield f"no rank trained for {seconds:.0f} s after {fault}"
    if fault.kind == "cut" and seconds < NOTICED_SECONDS and not any("was lost" in text for text in notices):
        yield f"no effect was seen after {fault}"


def too_many(given_up: int, runs: int) -> Iterator[str]:
    """Yield a sentence if more runs than allowed ended early."""
    if given_up > max(1, runs // GIVEN_UP) or given_up == runs:
        yield f"{given_up} of {runs} runs were given up"


def _processes(ranks: Sequence[Step]) -> list[tuple[str, int]]:
    """Return the worker and the process id of each rank, in sorted order."""
    return sorted((step.worker, step.pid) for step in ranks)
