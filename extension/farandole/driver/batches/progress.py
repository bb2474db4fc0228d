"""The progress of a job of `Cluster.map_batches` in the messages with which ranks report that of a training loop."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from farandole.batches.parts import PartResult
from farandole.driver.workers.worker import Progress
from farandole.protocol import Kind, Report, report_to_json
from farandole.runs.run import Run
from farandole.times import duration_text

NAME = "parts"
BAR_SECONDS = 0.2
REPORT_SECONDS = 1.0
LINE_SECONDS = 5.0


class BatchProgress:
    """Counts the parts and rows of a job, and adds messages to its run.

    Each rank has the progress of the whole job, and its own rows per second.
    """

    def __init__(self, run: Run, progress: Progress, *, total: int, done: int) -> None:
        """Begin with ``done`` of all parts, which earlier calls have computed."""
        self._run = run
        self._say = progress
        self._total = total
        self._first = self._done = done
        self._rows: Counter[int] = Counter()
        self._seconds: dict[int, float] = {}
        self._reported_rows = 0
        self._began = time.time()
        self._start = self._lined = self._reported = time.monotonic()
        self._shown = 0.0

    def add(self, rank: int, result: PartResult) -> None:
        """Count a part that a rank has computed."""
        self._done += 1
        self._rows[rank] += result.rows
        self._seconds[rank] = result.seconds

    def show(self, *, last: bool = False) -> None:
        """Add the messages that are due to the run, or with ``last`` all, and say the progress every few seconds."""
        now = time.monotonic()
        if last or now - self._shown >= BAR_SECONDS:
            self._shown = now
            for rank in range(self._run.size):
                self._run.add_records(rank, self._record(rank, now, ended=last))
        if self._rows.total() > self._reported_rows and (last or now - self._reported >= REPORT_SECONDS):
            self._report(now)
        if not last and now - self._lined >= LINE_SECONDS:
            self._lined = now
            self._say(self._line(now))

    def _record(self, rank: int, now: float, *, ended: bool) -> dict[str, Any]:
        elapsed = max(now - self._start, 1e-9)
        return {
            "kind": Kind.PROGRESS,
            "rank": rank,
            "time": time.time(),
            "started": self._began,
            "ended": ended,
            "name": NAME,
            "done": self._done,
            "total": self._total,
            "samples": self._rows[rank],
            "rate": (self._done - self._first) / elapsed,
            "samples_per_second": self._rows[rank] / elapsed,
            "step_seconds": self._seconds.get(rank),
        }

    def _report(self, now: float) -> None:
        """Report the rows per second since the last report."""
        rows = self._rows.total()
        rate = (rows - self._reported_rows) / max(now - self._reported, 1e-9)
        self._reported, self._reported_rows = now, rows
        report = Report(rank=0, time=time.time(), step=self._done, values={"rows_per_second": rate})
        self._run.add_records(0, report_to_json(report))

    def _line(self, now: float) -> str:
        elapsed = now - self._start
        text = f"{self._done}/{self._total} parts, {self._rows.total() / elapsed:,.0f} rows/s"
        new = self._done - self._first
        return f"{text}, {duration_text((self._total - self._done) * elapsed / new)} left" if new else text
