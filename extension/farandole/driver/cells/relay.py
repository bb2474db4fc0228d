"""Transfers a cell's output from the event loop's thread to the thread that shows the output."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from farandole.driver.loop import Errand
from farandole.driver.output import Block, Folder
from farandole.runs.run import Run

Show: TypeAlias = Callable[[Block], None]
Watch: TypeAlias = Callable[[Run], Callable[[], None]]
"""A callback that receives a run to show. The function that it returns is called about ten times a second, and once
more after the run has ended."""


class Backlog:
    """Keeps blocks until they can be shown. Of each display, only the latest state is kept."""

    def __init__(self) -> None:
        self._blocks: dict[object, Block] = {}
        self._lock = threading.Lock()

    def add(self, block: Block) -> None:
        """Add a block. May be called on any thread."""
        with self._lock:
            # A known key keeps its position, so a display stays where it was first shown.
            self._blocks[block.display or object()] = block

    def take(self) -> list[Block]:
        """Remove and return all blocks."""
        with self._lock:
            blocks, self._blocks = list(self._blocks.values()), {}
        return blocks


class OutputRelay:
    """Accepts output on the loop's thread, merges equal output, and shows it on the thread that calls `pump`."""

    def __init__(self, ranks: Sequence[int], show: Show) -> None:
        self._folder = Folder(ranks)
        self._show = show
        self._waiting: queue.SimpleQueue[tuple[int, str, dict[str, Any]]] = queue.SimpleQueue()
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reported_dropped = False

    def add_note(self, text: str) -> None:
        """Show a sentence from the driver. Called on the loop's thread."""
        self._notes.put(text)

    def put(self, rank: int, kind: str, content: dict[str, Any]) -> None:
        """Accept an output message. Called on the loop's thread."""
        self._waiting.put((rank, kind, content))

    def pump(self, *, flush: bool = False) -> None:
        """Show the output that is ready; with `flush`, show all output."""
        now = time.monotonic()
        while not self._waiting.empty():
            self._folder.feed(*self._waiting.get(), now)
        for block in self._folder.take(now, flush=flush):
            self._show(block)
        while not self._notes.empty():
            self._show(Block(ranks=(), stream="stderr", text=f"{self._notes.get()}\n"))
        if flush and self._folder.dropped and not self._reported_dropped:
            self._reported_dropped = True
            text = (
                f"... {self._folder.dropped:,} more characters are not shown. `%cluster logs RANK` shows a rank's last "
                "lines; a run's folder contains all of them.\n"
            )
            self._show(Block(ranks=(), stream="stderr", text=text))


class RunView:
    """Shows a run's output and dashboard in the cell that waits for the run, on that cell's thread."""

    def __init__(self, show: Show, watch: Watch | None) -> None:
        self.begun = False
        self.left = False
        """Whether the run continues without this driver, whose kernel is being shut down."""
        self.errand = Errand()
        self._show = show
        self._watch = watch
        self._refresh: Callable[[], None] | None = None

    async def begin(self, run: Run) -> OutputRelay:
        """Start showing a run, and return the relay for its output. Called on the loop's thread.

        ``watch`` is called before the cell begins, so that the dashboard does not miss the first reports.
        """
        self.run, self._relay = run, OutputRelay(list(range(run.size)), self._show)
        # Set last, because the cell's thread reads `run` and `_relay` only if `begun` is True.
        self.begun = True
        if self._watch is not None:
            await self.errand.run(partial(self._begin_watch, self._watch))
        return self._relay

    def _begin_watch(self, watch: Watch) -> None:
        self._refresh = watch(self.run)

    def pump(self, *, flush: bool = False) -> None:
        """Show the output that is ready. Called on the thread of the cell."""
        if not self.begun:
            return
        self.errand.pump()
        self._relay.pump(flush=flush)
        if self._refresh is not None:
            self._refresh()
