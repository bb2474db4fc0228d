"""Completes runs that have neither a driver nor workers, from the journals that the workers have persisted."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import socket
import warnings
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

from farandole.driver.kernels.errors import rank_error
from farandole.driver.kernels.replies import Reply
from farandole.driver.kernels.router import MessageRouter
from farandole.driver.loop import LoopThread
from farandole.driver.recovery.reattach import find_runs, follow_to_end, restore_run
from farandole.driver.workers.journal import WorkerJournal
from farandole.driver.workers.worker import Worker
from farandole.protocol import LEFT_RECORDS, Status
from farandole.runs.model import RunInfo
from farandole.runs.positions import JournalPosition
from farandole.runs.run import Run
from farandole.runs.store import RunStore, read_info

READ_BYTES = 1_000_000


class OrphanedWorker(Worker):
    """Stands for a lost worker: returns the journal of one kernel that the worker has persisted in the run's folder."""

    def __init__(self, header: Path) -> None:
        self._frames = header.with_suffix(".frames")
        self._journal: dict[str, Any] = json.loads(header.read_text(encoding="utf-8"))
        self.name = self._journal.pop("worker")

    async def records(self) -> WorkerJournal:
        """Return the one journal."""
        return WorkerJournal.from_json({"kernels": [], "records": [self._journal]})

    async def follow(self, run: str, kernel_id: str, after: int) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        """Yield all frames of the journal; the kernel skips those that it has received before."""
        with self._frames.open("rb") as file:
            while frames := await asyncio.to_thread(_read, file):
                for frame in frames:
                    yield frame


def _read(file: BufferedReader) -> list[bytes]:
    frames, size = [], 0
    while size < READ_BYTES and (head := file.read(4)):
        frames.append(file.read(int.from_bytes(head, "big")))
        size += len(frames[-1])
    return frames


def orphaned_workers(store: RunStore, cluster: str) -> list[OrphanedWorker]:
    """Return the persisted journals of a cluster's runs whose ends are not in the store."""
    return [
        OrphanedWorker(header) for info in _left(store) if info.cluster == cluster for header in _headers(info.folder)
    ]


def complete(store: RunStore, *, cluster: str | None = None) -> list[Run]:
    """Complete runs from persisted journals, write their ends to the store and return the runs.

    - A run is completed if the journals of all its ranks are there.
    - The runs of ``cluster``, which has no workers any more, are completed even with journals missing.
    """
    found = [info for info in _left(store) if info.cluster == cluster or _is_whole(info)]
    if not found:
        return []
    loop = LoopThread()
    try:
        return [run for info in found if (run := _complete(loop, store, info)) is not None]
    finally:
        loop.close()


def _left(store: RunStore) -> Iterator[RunInfo]:
    """Yield the runs without a driver that have persisted journals; remove the journals of completed runs."""
    for info in store.list():
        if not _headers(info.folder):
            continue
        if not info.status.ended or info.status is Status.LOST:
            if not _is_led(info):
                yield info
        else:
            shutil.rmtree(info.folder / LEFT_RECORDS, ignore_errors=True)


def _is_led(info: RunInfo) -> bool:
    """Return whether a driver leads the run; on another host, whether it wrote ``run.json`` after the journals."""
    if info.status is Status.LOST:
        return False
    if info.driver.get("host") == socket.gethostname():
        return True
    left = max(header.stat().st_mtime for header in _headers(info.folder))
    return (info.folder / "run.json").stat().st_mtime > left


def _is_whole(info: RunInfo) -> bool:
    """Return whether all ranks have journals; never for an elastic run, in which ranks share numbers."""
    records = [json.loads(header.read_text(encoding="utf-8")) for header in _headers(info.folder)]
    ranks = {record["rank"] for record in records}
    return ranks >= set(range(info.size)) and not any(record["about"].get("elastic") for record in records)


def _headers(folder: Path) -> list[Path]:
    found = (folder / LEFT_RECORDS).glob("[!.]*.json")
    return sorted(header for header in found if header.with_suffix(".frames").exists())


def _complete(loop: LoopThread, store: RunStore, info: RunInfo) -> Run | None:
    """Complete a run, unless another process does; remove its journals once its end is on disk."""
    folder = info.folder / LEFT_RECORDS
    try:
        with _claimed(folder) as claimed:
            if not claimed or not _headers(info.folder):
                return None
            run = loop.call(_complete_from_journals(store, info))
            if read_info(info.folder).status is run.status:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        warnings.warn(f"The journals that workers left of run {info.id} cannot be read: {error}", stacklevel=4)
        return None
    return run


@contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _complete_from_journals(store: RunStore, info: RunInfo) -> Run:
    [found] = await find_runs([OrphanedWorker(header) for header in _headers(info.folder)])
    run, router = restore_run(found, store, write=True), MessageRouter()
    router.runs[run.id] = run
    readers, sink = found.readers(router.to_run), partial(_take, run)
    if found.elastic is None:
        replies: Sequence[Reply] = await asyncio.gather(*(reader.read(sink) for reader in readers))
    else:
        replies = await follow_to_end(readers, sink)
    error = str(rank_error(replies)) if any(reply.status != "ok" for reply in replies) else None
    run.finish(Status.FAILED if error else Status.FINISHED, error, ended=found.ended)
    return run


def _take(run: Run, rank: int, kind: str, content: dict[str, Any], position: JournalPosition | None) -> None:
    if kind == "stream":
        run.add_log(rank, content["text"], position)
