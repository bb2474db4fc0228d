"""Where the output of one cell passes from the loop's thread to the caller's."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from farandole.driver.output import Block, Folder
from farandole.runs.run import Run

Show: TypeAlias = Callable[[Block], None]
Watch: TypeAlias = Callable[[Run], Callable[[], None]]
"""Called with a new run; returns what is called about ten times a second while the run continues, and at its end."""


class OutputRelay:
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


class RunView:
    """A run as the cell that waits for it shows it: output and dashboard belong to that cell's thread."""

    def __init__(self, show: Show, watch: Watch | None) -> None:
        self.begun = False
        self._show = show
        self._watch = watch
        self._refresh: Callable[[], None] | None = None

    def begin(self, run: Run) -> OutputRelay:
        """Take the run that has been begun, on the loop's thread; return where its output goes."""
        self.run, self._screen = run, OutputRelay(list(range(run.size)), self._show)
        # Last: the other thread looks at nothing else before.
        self.begun = True
        return self._screen

    def pump(self, *, flush: bool = False) -> None:
        """Show what is ready, on the thread of the cell."""
        if not self.begun:
            return
        if self._watch is not None:
            self._refresh, self._watch = self._watch(self.run), None
        self._screen.pump(flush=flush)
        if self._refresh is not None:
            self._refresh()
