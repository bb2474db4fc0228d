"""Runs that go on, or ended, without their driver: found on the workers that recorded them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from farandole.driver.elastic import Elastic
from farandole.driver.kernels import RankKernel
from farandole.driver.records import GONE, RecordInfo
from farandole.driver.replies import Records, Reply, Sink
from farandole.driver.runs import Run
from farandole.driver.store import RunStore, feed
from farandole.driver.workers import Worker
from farandole.exceptions import RunNotFoundError
from farandole.protocol import Status


def about(run: Run, elastic: Elastic | None = None) -> dict[str, Any]:
    """Return what the workers are to know of a run, so that another driver can make it again."""
    options = None if elastic is None else asdict(elastic)
    return {"run": json.loads(run.info.to_json()), "code": run.code, "elastic": options}


class RunReader:
    """Reads what one rank says in a run that this driver did not begin; ``record`` None: nobody has it any more."""

    def __init__(self, kernel: RankKernel, record: RecordInfo | None, worker: str) -> None:
        self.kernel = kernel
        self.kernel_id = kernel.kernel_id
        self._name = worker
        self._record = record

    @property
    def caught_up(self) -> bool:
        """Whether all was read that there was when the run was found."""
        return self._record is None or self.kernel.heard >= self._record.count or not self.kernel.alive

    async def read(self, sink: Sink) -> Reply:
        """Read all of it, to the end of the rank's part in the run."""
        if self._record is None:
            self.kernel.mark_dead(GONE)
            return Reply(rank=self.kernel.rank, worker=self._name, status="dead", ended=time.monotonic(), evalue=GONE)
        return await self.kernel.follow(self._record, sink)


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run on record: ``records`` by rank, each with its worker."""

    id: str
    records: dict[int, tuple[Worker, RecordInfo]]

    @property
    def about(self) -> dict[str, Any]:
        """What its driver wrote down when it began."""
        return self._first[1].about

    def is_led(self, store: RunStore) -> bool:
        """Whether a driver still reads along; one that was killed a moment ago may only seem to."""
        seems = any(record.led for _, record in self.records.values())
        return seems and self._status_in(store) is not Status.LOST

    @property
    def ended(self) -> float | None:
        """When it ended, or None."""
        ends = [record.ended for _, record in self.records.values()]
        return max(end or 0.0 for end in ends) if all(ends) else None

    @property
    def missing(self) -> list[int]:
        """The ranks that nobody has on record any more: their workers are gone."""
        return [rank for rank in range(int(self.about["run"]["size"])) if rank not in self.records]

    def is_news(self, store: RunStore) -> bool:
        """Whether the store does not know its end."""
        status = self._status_in(store)
        return status is None or not status.ended or status is Status.LOST or self.ended is None

    def _status_in(self, store: RunStore) -> Status | None:
        try:
            return store.find(self.id).status
        except RunNotFoundError:
            return None

    def readers(self, on_records: Records) -> list[RunReader]:
        """Return a reader for each rank."""
        return [self._reader(rank, on_records) for rank in range(int(self.about["run"]["size"]))]

    def _reader(self, rank: int, on_records: Records) -> RunReader:
        # A rank that nobody has on record is dead; whose worker its kernel is then said to be of does not matter.
        worker, record = self.records.get(rank, (self._first[0], None))
        kernel = RankKernel(worker, record.kernel if record else "", slot=-1, on_records=on_records)
        kernel.rank = rank
        return RunReader(kernel, record, str(self.about["run"]["workers"][rank]))

    @property
    def _first(self) -> tuple[Worker, RecordInfo]:
        return self.records[min(self.records)]


async def find_runs(workers: Iterable[Worker]) -> list[FoundRun]:
    """Return the runs that workers have on record, in the order in which they began."""
    asked = list(workers)
    answers = await asyncio.gather(*(worker.records() for worker in asked))
    runs: dict[str, dict[int, tuple[Worker, RecordInfo]]] = {}
    for worker, answer in zip(asked, answers, strict=True):
        for record in answer.records:
            runs.setdefault(record.run, {})[record.rank] = (worker, record)
    found = [FoundRun(id=run, records=records) for run, records in runs.items()]
    return sorted(found, key=lambda run: float(run.about["run"]["started"]))


def told_again(found: FoundRun, store: RunStore, *, write: bool) -> Run:
    """Return a found run as it was when it began, to be fed by its readers.

    With `write` its files are continued. They alone know what ranks have said whose workers are gone.
    """
    run = store.resume(found.about["run"], found.about["code"], write=write)
    feed(run, found.missing)
    return run


async def until_caught_up(readers: Sequence[RunReader], seconds: float) -> bool:
    """Return whether all was read within ``seconds`` that was there when the runs were found."""
    deadline = time.monotonic() + seconds
    while not all(reader.caught_up for reader in readers):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True
