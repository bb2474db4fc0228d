"""Summaries of a worker's run journals, as returned by ``GET farandole/records``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farandole.protocol import Part


@dataclass(frozen=True, kw_only=True)
class JournalInfo:
    """A summary of a worker's journal for one rank in one run.

    - ``requests`` maps the message ids of the run's requests to their parts.
    - ``ended`` is a time in seconds since the epoch, or None while the run continues.
    - ``led`` is true while a driver reads the journal or is connected to the kernel.
    - ``count`` is the number of messages.
    - ``about`` is the description of the run by its first driver; see `farandole.driver.recovery.reattach.about`.
    """

    run: str
    kernel: str
    rank: int
    requests: dict[str, Part]
    ended: float | None
    led: bool
    count: int
    about: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WorkerJournal:
    """The ids of a worker's live kernels, and the worker's journals, oldest first."""

    kernels: tuple[str, ...]
    records: tuple[JournalInfo, ...]

    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> WorkerJournal:
        """Parse the response to ``GET farandole/records``."""
        records = [
            JournalInfo(**{**one, "requests": {key: Part(part) for key, part in one["requests"].items()}})
            for one in answer["records"]
        ]
        return cls(kernels=tuple(answer["kernels"]), records=tuple(records))

    def requests_of(self, run: str, kernel_id: str) -> dict[str, Part]:
        """Return those requests of a run that have reached a kernel."""
        return next((one.requests for one in self.records if (one.run, one.kernel) == (run, kernel_id)), {})
