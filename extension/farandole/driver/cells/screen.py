"""Where the output of one cell passes from the loop's thread to the caller's."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any

from farandole.driver.output import Block, Folder

Show = Callable[[Block], None]


class Screen:
    """Takes output on the loop's thread and shows it, folded, on the caller's."""

    def __init__(self, ranks: Sequence[int], show: Show) -> None:
        self._folder = Folder(ranks)
        self._show = show
        self._waiting: queue.SimpleQueue[tuple[int, str, dict[str, Any]]] = queue.SimpleQueue()
        self._told = False

    def put(self, rank: int, kind: str, content: dict[str, Any]) -> None:
        """Take a message from the loop's thread."""
        self._waiting.put((rank, kind, content))

    def pump(self, *, flush: bool = False) -> None:
        """Show what is ready."""
        now = time.monotonic()
        while not self._waiting.empty():
            self._folder.feed(*self._waiting.get(), now)
        for block in self._folder.take(now, flush=flush):
            self._show(block)
        if flush and self._folder.dropped and not self._told:
            self._told = True
            text = (
                f"... {self._folder.dropped:,} more characters are not shown. `%cluster logs RANK` shows a rank's last "
                "lines; a run's folder holds them all.\n"
            )
            self._show(Block(ranks=(), stream="stderr", text=text))
