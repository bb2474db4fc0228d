"""Shows a run in the output of its cell, and sends it to TensorBoard and to experiment trackers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from farandole.notebook.display import RunDisplay
from farandole.notebook.progress import ProgressLines
from farandole.notebook.sinks.delivery import Delivery, Tracker
from farandole.notebook.tensorboard import TensorBoardWriter

if TYPE_CHECKING:
    from farandole.runs.run import Run

TRACKER_SECONDS = 10
"""How long the cell of a run that has ended waits for a slow experiment tracker."""


class Watcher:
    """Shows a run until its end, and optionally writes TensorBoard event files.

    It also sends the run to the experiment ``trackers``.
    With ``lines``, it also prints the progress of the run now and then if the client is no page with notebooks.
    """

    def __init__(self, *, tensorboard: bool = False, trackers: Sequence[Tracker] = (), lines: bool = False) -> None:
        self._tensorboard = tensorboard
        self._trackers = trackers
        self._lines = lines
        self.run: Run | None = None
        self._display: RunDisplay | None = None
        self._writer: TensorBoardWriter | None = None
        self._deliveries: list[Delivery] = []

    def __call__(self, run: Run) -> Callable[[], None]:
        """Show ``run`` and return a function that refreshes the display."""
        self.run = run
        display = self._display = RunDisplay(run)
        # Pages with notebooks name the cell in their request, and they update displays. Other clients may not.
        lines = ProgressLines(run) if self._lines and not run.info.cell else None
        if self._tensorboard:
            self._writer = TensorBoardWriter(run)
        self._deliveries = [Delivery(run, tracker) for tracker in self._trackers]

        def refresh() -> None:
            display.refresh()
            if lines is not None:
                lines.refresh()
            if run.status.ended:
                self._close()

        return refresh

    def finish(self) -> None:
        """Close the event files and the deliveries. If the run has ended, show it as it is then, with all notices."""
        self._close()
        for delivery in self._deliveries:
            delivery.wait(TRACKER_SECONDS)
        if self._display is not None:
            self._display.refresh()

    def _close(self) -> None:
        """Close the event files and the deliveries, unless an earlier call has already closed them."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for delivery in self._deliveries:
            delivery.close()
