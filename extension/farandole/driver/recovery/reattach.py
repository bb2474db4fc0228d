"""Finds the runs of an earlier driver in the workers' journals, and follows these runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from farandole.driver.kernels.kernel import RankKernel
from farandole.driver.kernels.replies import Records, Reply, Sink
from farandole.driver.loop import all_or_first_error
from farandole.driver.options import Elastic
from farandole.driver.workers.journal import JournalInfo
from farandole.driver.workers.worker import GONE, Worker
from farandole.exceptions import RunNotFoundError
from farandole.protocol import Status
from farandole.runs.folder import driver_is_gone, this_process
from farandole.runs.model import RunInfo
from farandole.runs.run import Run
from farandole.runs.store import RunStore

OPEN_AGAIN_SECONDS = 5.0
"""How many seconds a driver may take to reopen its connections, for example after a restart of the proxy, before it
counts as lost. The driver's process may run on another machine, where it cannot be checked."""
LED_POLL_SECONDS = 0.5
LAST_WORDS_SECONDS = 2.0
"""How many seconds the next message from a dead rank may take before its worker is asked whether the journal contains
more."""


def about(run: Run, elastic: Elastic | None = None) -> dict[str, Any]:
    """Return the description of a run that is stored in the journals, so that another driver can take over the run."""
    options = None if elastic is None else asdict(elastic)
    return {"run": json.loads(run.info.to_json()), "folder": str(run.folder), "code": run.code, "elastic": options}


class RunReader:
    """Reads one rank's journal in a run that another driver began. ``journal`` is None if no worker has it."""

    def __init__(self, kernel: RankKernel, journal: JournalInfo | None, worker: str) -> None:
        self.kernel = kernel
        self.kernel_id = kernel.kernel_id
        self._name = worker
        self._journal = journal

    @property
    def caught_up(self) -> bool:
        """Whether all messages that existed when the run was found have been read, or the rank is known to be dead."""
        return self._journal is None or self.kernel.last_number >= self._journal.count or not self.kernel.alive

    async def read(self, sink: Sink, seen: RankKernel | None = None) -> Reply:
        """Read the journal to its end, and return how the cell ended on the rank.

        ``seen`` is the same kernel with an open websocket, which detects the kernel's death. Reading the journal may
        not detect it, because a proxy can keep the response of a killed worker open forever.
        """
        if self._journal is None:
            self.kernel.mark_dead(GONE)
            return Reply(rank=self.kernel.rank, worker=self._name, status="dead", ended=time.monotonic(), evalue=GONE)
        over = asyncio.Event()
        reading = asyncio.create_task(self.kernel.follow(self._journal, sink, over))
        try:
            if seen is not None:
                await self._read_while_it_comes(reading, self._journal, seen)
                over.set()
            return await reading
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read_while_it_comes(self, reading: asyncio.Task[Reply], journal: JournalInfo, seen: RankKernel) -> None:
        """Wait for the end of the journal, or until the rank is dead and all its messages have been read."""
        death = asyncio.create_task(seen.ended())
        try:
            await asyncio.wait([reading, death], return_when=asyncio.FIRST_COMPLETED)
        finally:
            death.cancel()
        while not reading.done():
            last = self.kernel.last_number
            await asyncio.wait([reading], timeout=LAST_WORDS_SECONDS)
            if self.kernel.last_number == last and await self._count(journal) <= last:
                # If the reply has already been read, marking the kernel as dead does not change it.
                self.kernel.mark_dead(seen.death or GONE)
                return

    async def _count(self, journal: JournalInfo) -> int:
        """Return the number of messages in the journal, or 0 if the worker is lost."""
        found = await self.kernel.worker.find_again()
        records = () if isinstance(found, str) else found.records
        return max((one.count for one in records if (one.run, one.kernel) == (journal.run, journal.kernel)), default=0)


@dataclass(frozen=True, kw_only=True)
class FoundRun:
    """A run, with each journal and the worker that holds it. An elastic run can have several journals for one rank."""

    id: str
    journals: Sequence[tuple[Worker, JournalInfo]]

    @property
    def about(self) -> dict[str, Any]:
        """The driver's description of the run, as returned by `about`."""
        return self.journals[0][1].about

    @property
    def elastic(self) -> Elastic | None:
        """The options of an elastic run, or None for other runs."""
        options = self.about.get("elastic")
        return None if options is None else Elastic(**options)

    def is_led(self, store: RunStore) -> bool:
        """Return whether a driver is still reading the journals or connected to the ranks.

        The result may stay true for a while after the driver's process has ended, until the workers notice. The workers
        are right about a driver on another host that gives no sign of life: only its connection to the storage is lost.
        """
        seems = any(journal.led for _, journal in self.journals)
        info = self._info_in(store)
        return seems and (info is None or info.status is not Status.LOST or not driver_is_gone(info.driver))

    def may_be_led(self, store: RunStore) -> bool:
        """Return whether the run may have another driver that is still running but is reopening its connections."""
        try:
            info = store.find(self.id)
        except RunNotFoundError:
            return False
        return self.ended is None and info.status is Status.RUNNING and info.driver != this_process()

    @property
    def ended(self) -> float | None:
        """The time at which the run ended, in seconds since the epoch, or None if it continues."""
        ends = [journal.ended for _, journal in self.journals]
        return max(end or 0.0 for end in ends) if all(ends) else None

    @property
    def missing(self) -> list[int]:
        """The ranks that have no journal because their workers are lost."""
        known = {journal.rank for _, journal in self.journals}
        return [rank for rank in range(int(self.about["run"]["size"])) if rank not in known]

    def is_news(self, store: RunStore) -> bool:
        """Return whether the store does not yet contain the end of the run, and the user has not deleted the run.

        A run that continues is always news, even if a server that did not know this has deleted its folder.
        """
        if self.ended is None:
            return True
        info = self._info_in(store)
        if info is None:
            return not store.has_deleted(self.id)
        return not info.status.ended or info.status is Status.LOST

    def _info_in(self, store: RunStore) -> RunInfo | None:
        try:
            return store.find(self.id)
        except RunNotFoundError:
            return None

    def readers(self, on_records: Records) -> list[RunReader]:
        """Return a reader for each journal and, unless the run is elastic, for each other rank, in rank order."""
        present = [_reader(worker, journal.rank, journal, worker.name, on_records) for worker, journal in self.journals]
        # In an elastic run, ranks without a journal have been replaced by other ranks.
        absent = [] if self.elastic else self.missing
        workers = self.about["run"]["workers"]
        # A rank without a journal is dead, so the worker of its placeholder kernel is never used.
        dead = [_reader(self.journals[0][0], rank, None, str(workers[rank]), on_records) for rank in absent]
        return sorted([*present, *dead], key=lambda reader: reader.kernel.rank)


def _reader(worker: Worker, rank: int, journal: JournalInfo | None, name: str, on_records: Records) -> RunReader:
    kernel = RankKernel(worker, journal.kernel if journal else "", slot=-1, on_records=on_records)
    kernel.rank = rank
    return RunReader(kernel, journal, name)


async def find_runs(workers: Iterable[Worker]) -> list[FoundRun]:
    """Return the runs in the workers' journals, in the order in which they began."""
    asked = list(workers)
    answers = await asyncio.gather(*(worker.records() for worker in asked))
    runs: dict[str, list[tuple[Worker, JournalInfo]]] = {}
    seen: set[tuple[str, str]] = set()
    for worker, answer in zip(asked, answers, strict=True):
        for journal in answer.records:
            # A worker that is still alive may also have persisted the same journal in the run's folder.
            if (journal.run, journal.kernel) not in seen:
                seen.add((journal.run, journal.kernel))
                runs.setdefault(journal.run, []).append((worker, journal))
    found = [FoundRun(id=run, journals=journals) for run, journals in runs.items()]
    return sorted(found, key=lambda run: float(run.about["run"]["started"]))


async def is_led(found: FoundRun, store: RunStore, seconds: float = OPEN_AGAIN_SECONDS) -> bool:
    """Return whether a driver leads a run. If that driver may be reopening its connections, wait for a while first."""
    give_up = time.monotonic() + seconds
    while not found.is_led(store):
        if not found.may_be_led(store) or time.monotonic() > give_up:
            return False
        await asyncio.sleep(LED_POLL_SECONDS)
        again = await find_runs({worker.name: worker for worker, _ in found.journals}.values())
        found = next((one for one in again if one.id == found.id), found)
    return True


def restore_run(found: FoundRun, store: RunStore, *, write: bool) -> Run:
    """Create the `Run` for a found run. Its readers add the messages. With `write`, this driver continues its files.

    Messages from ranks whose workers are lost exist only in these files.

    Raises RunNotFoundError if the run has ended and the user has deleted it.
    """
    run, code = found.about["run"], found.about["code"]
    # The ranks of an elastic run change their numbers, so no rank is permanently missing.
    missing = () if found.elastic else found.missing
    if not write:
        return store.follow(run, code, missing=missing)
    return store.resume(run, code, missing=missing, continues=found.ended is None)


async def until_caught_up(readers: Sequence[RunReader], seconds: float) -> bool:
    """Wait until all readers have caught up. Return False if that takes longer than ``seconds``."""
    deadline = time.monotonic() + seconds
    while not all(reader.caught_up for reader in readers):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def follow_to_end(readers: Sequence[RunReader], sink: Sink) -> list[Reply]:
    """Follow an elastic run to its end without controlling it.

    Return the replies of the failed ranks, if any. Otherwise, return the replies of the ranks that reached the end, or
    all replies if no rank did.
    """
    replies = await all_or_first_error([reader.read(sink) for reader in readers])
    failed = [reply for reply in replies if reply.status == "error"]
    ended = [reply for reply in replies if reply.status == "ok"]
    return failed or ended or list(replies)
