"""What workers have recorded of runs, and how a driver finds a worker again that it has lost."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.exceptions import WorkerStartError
from farandole.protocol import Part

if TYPE_CHECKING:
    from farandole.driver.workers.worker import Worker

LOST_SECONDS = 120.0
"""How long a driver looks for a worker while nobody says that it is gone: a hub or a proxy may be restarted."""
REFUSED_SECONDS = 3.0
"""How long a worker may be refused by a proxy that answers for the hub: a hub sees only now and then who has died."""
PROBE_SECONDS = 5.0
LONGEST_PAUSE = 2.0
GONE = "lost: its worker ended or cannot be reached"


@dataclass(frozen=True, kw_only=True)
class JournalInfo:
    """A worker's record of one rank's part in a run.

    ``requests`` maps the message ids of the run's requests to what they are; ``ended``: when, in seconds since the
    epoch; ``led``: a driver reads along; ``count``: how many messages there are; ``about``: what the driver wrote down
    when it began the run, ``run`` (see `farandole.runs.run.RunInfo`) and ``code``.
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
    """The ids of the kernels that live on a worker, and its records in the order in which they began."""

    kernels: tuple[str, ...]
    records: tuple[JournalInfo, ...]

    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> WorkerJournal:
        """Return what ``GET farandole/records`` wrote."""
        records = [
            JournalInfo(**{**one, "requests": {key: Part(part) for key, part in one["requests"].items()}})
            for one in answer["records"]
        ]
        return cls(kernels=tuple(answer["kernels"]), records=tuple(records))

    def requests_of(self, run: str, kernel_id: str) -> dict[str, Part]:
        """Return the requests of a run that have reached a kernel."""
        return next((one.requests for one in self.records if (one.run, one.kernel) == (run, kernel_id)), {})


async def find_again(worker: Worker) -> WorkerJournal | str:
    """Wait until a worker answers again and return its records, or why it must be taken for gone.

    A broken connection alone says nothing: the proxy or the hub may have been restarted, and the ranks go on.
    """
    give_up, pause, refused = time.monotonic() + LOST_SECONDS, 0.05, None
    while time.monotonic() < give_up:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                return await worker.records()
        except (WorkerStartError, TimeoutError) as exc:
            present = await _present(worker)
            if present is False:
                return GONE
            # Who refuses is the proxy: the port is closed, or it has no way to it. No answer at all says less.
            refusing = present is True and isinstance(exc, WorkerStartError)
            refused = (refused or time.monotonic()) if refusing else None
            if refused is not None and time.monotonic() - refused > REFUSED_SECONDS:
                return GONE
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    return (
        f"lost: its worker could not be reached for {LOST_SECONDS:g} s, and it may still run; once the hub answers, "
        "`%cluster attach` takes it up again"
    )


async def _present(worker: Worker) -> bool | None:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await worker.presence()
    except TimeoutError:
        return None
