"""Delivers the reports of a run to an experiment tracker on a thread, so that a slow tracker never slows the run."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from farandole.protocol import Report
from farandole.runs.series import Axis

if TYPE_CHECKING:
    from farandole.runs.run import Run

MOST_WAITING = 100_000
"""Number of reports that wait for a slow tracker. The delivery gives up when there are more."""

BATCH = 200
"""The largest number of reports that are sent together."""


class Tracker(ABC):
    """Sends a run to an experiment tracker. All methods are called on one thread and may block.

    A subclass implements `open`, `write` and `close`, which may raise anything.
    """

    name: str

    @abstractmethod
    def open(self, run: Run) -> None:
        """Start the run in the tracker, with hyper-parameters, versions and code."""

    @abstractmethod
    def write(self, reports: list[Report]) -> None:
        """Send reports, oldest first."""

    @abstractmethod
    def close(self, run: Run) -> None:
        """Record the notices and the final status of the run."""


class Steps:
    """Places reports on the horizontal axis of their series, in the same way as the charts of a run do."""

    def __init__(self) -> None:
        self._axes: dict[tuple[int, str], Axis] = {}

    def of(self, report: Report, name: str) -> int:
        """Return the step of the value ``name`` of a report."""
        axis = self._axes.setdefault((report.rank, name), Axis())
        return int(axis.place(report.step, report.epoch))


class Delivery:
    """Passes the reports of a run to a tracker.

    - The run never waits for the tracker.
    - After the first error nothing more is sent, and the run continues with a notice about the error.
    - The thread ends with the process, so a tracker that hangs does not keep the kernel alive.
    """

    def __init__(self, run: Run, tracker: Tracker) -> None:
        self._run = run
        self._tracker = tracker
        self._reports: queue.Queue[Report | None] = queue.Queue()
        self._broken = threading.Event()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._deliver, name=f"farandole-{tracker.name}", daemon=True)
        self._thread.start()
        run.listen(self.add)

    def add(self, report: Report) -> None:
        """Queue a report for the tracker."""
        if self._reports.qsize() >= MOST_WAITING:
            self._give_up("too many reports wait for it")
        if not self._broken.is_set():
            self._reports.put(report)

    def close(self) -> None:
        """Send what is queued, and then the end of the run. Return at once. A second call does nothing."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._reports.put(None)

    def wait(self, timeout: float) -> None:
        """Wait until everything has been sent, at most ``timeout`` seconds, and add a notice if more remains."""
        self._thread.join(timeout)
        if self._thread.is_alive() and not self._broken.is_set():
            self._run.notice(f"{self._tracker.name} has not received the whole run yet; sending continues")

    def _deliver(self) -> None:
        try:
            self._tracker.open(self._run)
            while (batch := self._next()) and not self._broken.is_set():
                self._tracker.write(batch)
            self._tracker.close(self._run)
        except Exception as error:  # noqa: BLE001 - a tracker's client may raise anything, and the user must be told
            self._give_up(str(error) or repr(error))

    def _next(self) -> list[Report]:
        """Wait for reports and return them. An empty list is the end."""
        batch: list[Report] = []
        report = self._reports.get()
        while report is not None:
            batch.append(report)
            if len(batch) == BATCH or self._reports.empty():
                return batch
            report = self._reports.get()
        if batch:
            self._reports.put(None)
        return batch

    def _give_up(self, reason: str) -> None:
        if not self._broken.is_set():
            self._broken.set()
            text = f"{self._tracker.name} does not have the whole run: {reason}; the run's folder has it"
            self._run.notice(text, warning=True)
