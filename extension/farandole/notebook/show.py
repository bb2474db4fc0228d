"""Prints the merged output of the ranks below a cell."""

from __future__ import annotations

import sys
import time

from IPython.core.display_functions import publish_display_data
from IPython.core.getipython import get_ipython

from farandole.driver.displays import BLANK
from farandole.driver.output import Block, label

TERMINAL_SECONDS = 10.0
"""The minimum interval, in seconds, between two updates of a display in a terminal, which prints each update."""


def in_kernel() -> bool:
    """Return whether this process is a Jupyter kernel, whose clients can update displays."""
    return getattr(get_ipython(), "kernel", None) is not None


class RankPrinter:
    """Prints blocks of output below a line with their ranks. Consecutive blocks of the same ranks share the line."""

    def __init__(self) -> None:
        self._ranks: tuple[int, ...] = ()
        self._shown: dict[str, float] = {}
        """The time at which each display was last shown."""

    def __call__(self, block: Block) -> None:
        """Print one block of output, or show its MIME bundle."""
        known = block.display in self._shown
        if known and in_kernel():
            publish_display_data(block.bundle or {}, transient={"display_id": block.display}, update=True)
        elif not known or self._is_due(block):
            self._append(block)

    def _append(self, block: Block) -> None:
        if block.ranks and block.ranks != self._ranks:
            print(f"── {label(block.ranks)} " + "─" * 20, flush=True)
            self._ranks = block.ranks
        if block.display:
            self._ranks, self._shown[block.display] = block.ranks, time.monotonic()
            publish_display_data(block.bundle or {}, transient={"display_id": block.display})
        elif block.bundle is not None:
            publish_display_data(block.bundle)
        else:
            print(block.text, end="", file=sys.stderr if block.stream == "stderr" else sys.stdout, flush=True)

    def _is_due(self, block: Block) -> bool:
        due = block.final or time.monotonic() - self._shown[block.display] >= TERMINAL_SECONDS
        return due and block.bundle != BLANK
