"""Prints the merged output of the ranks below a cell."""

from __future__ import annotations

import sys

from IPython.core.display_functions import publish_display_data

from farandole.driver.output import Block, label


class RankPrinter:
    """Prints blocks of output below a line with their ranks. Consecutive blocks of the same ranks share the line."""

    def __init__(self) -> None:
        self._ranks: tuple[int, ...] = ()

    def __call__(self, block: Block) -> None:
        """Print one block of output, or display its MIME bundle."""
        out = sys.stderr if block.stream == "stderr" else sys.stdout
        if block.ranks and block.ranks != self._ranks:
            print(f"── {label(block.ranks)} " + "─" * 20, flush=True)
            self._ranks = block.ranks
        if block.bundle is not None:
            publish_display_data(block.bundle)
        else:
            print(block.text, end="", file=out, flush=True)
