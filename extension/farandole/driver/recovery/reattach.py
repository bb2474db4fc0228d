"""Runs that go on, or ended, without their driver: found on the workers that recorded them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Records, Reply, Sink
from farandole.driver.options import Elastic
from farandole.driver.workers.journal import JournalInfo
from farandole.driver.workers.worker import GONE, Worker
from farandole.exceptions import RunNotFoundError
from farandole.protocol import Status
from farandole.runs.run import Run
from farandole.runs.store import RunStore, this_process

OPEN_AGAIN_SECONDS = 5.0
"""How long a driver may take to open its connections again, after a restart of the proxy, say, before it counts as gone
although nobody says that its process has ended."""
LED_POLL_SECONDS = 0.5
LAST_WORDS_SECONDS = 2.0
"""How long the next message on record may take once the rank is dead, before its worker is asked for more."""


def about(run: Run, elastic: Elastic | None = None) -> dict[str, Any]:
    """Return what the workers are to know of a run, so that another driver can make it again."""
    options = None if elastic is None else asdict(elastic)
    return {"run": json.loads(run.info.to_json()), "folder": str(run.folder), "code": run.code, "elastic": options}


class RunReader:
    """Reads what one rank says in a run that this driver did not begin; ``record`` None: nobody has it any more."""

    def __init__(self, kernel: RankKernel, record: JournalInfo | None, worker: str) -> None:
        self.kernel = kernel
        self.kernel_id = kernel.kernel_id
        self._name = worker
        self._record = record

    @property
    def caught_up(self) -> bool:
        """Whether all was read that there was when the run was found."""
        return self._record is None or self.kernel.last_number >= self._record.count or not self.kernel.alive

    async def read(self, sink: Sink, seen: RankKernel | None = None) -> Reply:
        """Read all of it, to the end of the rank's part in the run.

        ``seen`` is the same kernel, connected: a proxy may leave the record of a worker that was killed open for ever.
        """
        if self._record is None:
            self.kernel.mark_dead(GONE)
            return Reply(rank=self.kernel.rank, worker=self._name, status="dead", ended=time.monotonic(), evalue=GONE)
        over = asyncio.Event()
        reading = asyncio.create_task(self.kernel.follow(self._record, sink, over))
        try:
            if seen is not None:
                await self._read_while_it_comes(reading, self._record, seen)
                over.set()
            return await reading
        finally:
            reading.cancel()

    async def _read_while_it_comes(self, reading: asyncio.Task[Reply], record: JournalInfo, seen: RankKernel) -> None:
        """Return at the end of the record, or once the rank is dead and its worker has no more, or is gone."""
        death = asyncio.create_task(seen.ended())
        try:
            await asyncio.wait([reading, death], return_when=asyncio.FIRST_COMPLETED)
        finally:
            death.cancel()
        while not reading.done():
            heard = self.kernel.last_number
            await asyncio.wait([reading], timeout=LAST_WORDS_SECONDS)
            if self.kernel.last_number == heard and await self._count(record) <= heard:
                # What had ended before stays as it ended.
                self.kernel.mark_dead(seen.death or GONE)
                return

    async def _count(self, record: JournalInfo) -> int:
        """Return how many messages its worker has on record, 0 where that is gone."""
        found = await self.kernel.worker.find_again()
        records = () if isinstance(found, str) else found.records
        return max((one.count for one in records if (one.run, one.kernel) == (record.run, record.kernel)), default=0)


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run on record: the records of its ranks, each with its worker; an elastic run may have several of a rank."""

    id: str
    records: Sequence[tuple[Worker, JournalInfo]]

    @property
    def about(self) -> dict[str, Any]:
        """What its driver wrote down when it began."""
        return self.records[0][1].about

    @property
    def elastic(self) -> Elastic | None:
        """What was asked of it as an elastic run, or None."""
        options = self.about.get("elastic")
        return None if options is None else Elastic(**options)

    def is_led(self, store: RunStore) -> bool:
        """Whether a driver still reads along; one that was killed a moment ago may only seem to."""
        seems = any(record.led for _, record in self.records)
        return seems and self._status_in(store) is not Status.LOST

    def may_be_led(self, store: RunStore) -> bool:
        """Whether a driver that is not known to have ended, and is not this one, may be about to read along again."""
        try:
            info = store.find(self.id)
        except RunNotFoundError:
            return False
        return self.ended is None and info.status is Status.RUNNING and info.driver != this_process()

    @property
    def ended(self) -> float | None:
        """When it ended, or None."""
        ends = [record.ended for _, record in self.records]
        return max(end or 0.0 for end in ends) if all(ends) else None

    @property
    def missing(self) -> list[int]:
        """The ranks that nobody has on record any more: their workers are gone."""
        known = {record.rank for _, record in self.records}
        return [rank for rank in range(int(self.about["run"]["size"])) if rank not in known]

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
        """Return a reader for each record, and for each rank that has none, in the order of the ranks."""
        present = [_reader(worker, record.rank, record, worker.name, on_records) for worker, record in self.records]
        # In an elastic run others have taken the places of those.
        absent = [] if self.elastic else self.missing
        workers = self.about["run"]["workers"]
        # A rank that nobody has on record is dead; whose worker its kernel is then said to be of does not matter.
        dead = [_reader(self.records[0][0], rank, None, str(workers[rank]), on_records) for rank in absent]
        return sorted([*present, *dead], key=lambda reader: reader.kernel.rank)


def _reader(worker: Worker, rank: int, record: JournalInfo | None, name: str, on_records: Records) -> RunReader:
    kernel = RankKernel(worker, record.kernel if record else "", slot=-1, on_records=on_records)
    kernel.rank = rank
    return RunReader(kernel, record, name)


async def find_runs(workers: Iterable[Worker]) -> list[FoundRun]:
    """Return the runs that workers have on record, in the order in which they began."""
    asked = list(workers)
    answers = await asyncio.gather(*(worker.records() for worker in asked))
    runs: dict[str, list[tuple[Worker, JournalInfo]]] = {}
    seen: set[tuple[str, str]] = set()
    for worker, answer in zip(asked, answers, strict=True):
        for record in answer.records:
            # A worker that lives may have left a record beside the run's files as well.
            if (record.run, record.kernel) not in seen:
                seen.add((record.run, record.kernel))
                runs.setdefault(record.run, []).append((worker, record))
    found = [FoundRun(id=run, records=records) for run, records in runs.items()]
    return sorted(found, key=lambda run: float(run.about["run"]["started"]))


async def is_led(found: FoundRun, store: RunStore, seconds: float = OPEN_AGAIN_SECONDS) -> bool:
    """Return whether a driver leads a run, also one whose connections are just being opened again."""
    give_up = time.monotonic() + seconds
    while not found.is_led(store):
        if not found.may_be_led(store) or time.monotonic() > give_up:
            return False
        await asyncio.sleep(LED_POLL_SECONDS)
        again = await find_runs({worker.name: worker for worker, _ in found.records}.values())
        found = next((one for one in again if one.id == found.id), found)
    return True


def restore_run(found: FoundRun, store: RunStore, *, write: bool) -> Run:
    """Return a found run, to be fed by its readers; with `write` this driver continues its files.

    The files alone hold what ranks have said whose workers are gone.
    """
    make = store.resume if write else store.follow
    # Ranks of an elastic run change their numbers: none of them is missing for good.
    return make(found.about["run"], found.about["code"], missing=() if found.elastic else found.missing)


async def until_caught_up(readers: Sequence[RunReader], seconds: float) -> bool:
    """Return whether all was read within ``seconds`` that was there when the runs were found."""
    deadline = time.monotonic() + seconds
    while not all(reader.caught_up for reader in readers):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def follow_to_end(readers: Sequence[RunReader], sink: Sink) -> list[Reply]:
    """Hear an elastic run to its end, without a hand in it; return how it ended for those that saw that."""
    replies = await asyncio.gather(*(reader.read(sink) for reader in readers))
    failed = [reply for reply in replies if reply.status == "error"]
    ended = [reply for reply in replies if reply.status == "ok"]
    return failed or ended or list(replies)
