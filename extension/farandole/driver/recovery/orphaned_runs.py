"""Completes runs that have neither a driver nor workers, based on the journals that the workers have persisted."""

from __future__ import annotations

import asyncio
import fcntl
import os
import reprlib
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
from farandole.driver.loop import LoopThread, all_or_first_error
from farandole.driver.options import Elastic
from farandole.driver.recovery.reattach import find_runs, follow_to_end, restore_run
from farandole.driver.workers.journal import WorkerJournal
from farandole.driver.workers.worker import Worker
from farandole.exceptions import RunNotFoundError, UsageError
from farandole.frames import check_parts
from farandole.protocol import LEFT_RECORDS, Status, is_number, is_rank
from farandole.reading import open_regular, other_writer, read_json, reason
from farandole.runs.folder import read_info
from farandole.runs.model import RunInfo
from farandole.runs.positions import JournalPosition
from farandole.runs.run import Run
from farandole.runs.store import RunStore

READ_BYTES = 1_000_000


class OrphanedWorker(Worker):
    """Stands in for a lost worker, with one journal that the worker had persisted in the run's folder."""

    def __init__(self, header: Path) -> None:
        self._folder = header.parent.parent
        self._frames = f"{LEFT_RECORDS}/{header.stem}.frames"
        self._journal = _read_header(header)
        self.name = self._journal.pop("worker")

    async def records(self) -> WorkerJournal:
        """Return the only journal."""
        return WorkerJournal.from_json({"kernels": [], "records": [self._journal]})

    async def follow(self, run: str, kernel_id: str, after: int) -> AsyncGenerator[bytes, None]:  # noqa: ARG002
        """Yield all frames of the journal. The reader skips messages that it has already received."""
        with open_regular(self._folder, self._frames) as file:
            while frames := await asyncio.to_thread(_read, file):
                for frame in frames:
                    yield frame


def _read_header(header: Path) -> dict[str, Any]:
    """Return the description of a persisted journal; raises OSError or ValueError if there is no valid one."""
    name = f"{LEFT_RECORDS}/{header.name}"
    journal = read_json(header.parent.parent, name)
    about = journal.get("about")
    try:
        [found] = WorkerJournal.from_json({"kernels": [], "records": [_without_worker(journal)]}).records
        whole = isinstance(journal["worker"], str) and isinstance(found.about["code"], str)
        info = RunInfo.from_json(found.about["run"], header.parent.parent)
        whole = whole and len(info.workers) >= info.size and is_rank(found.rank) and type(found.count) is int
        whole = whole and found.run == info.id and (found.ended is None or is_number(found.ended))
        Elastic(**(found.about.get("elastic") or {}))
    except (KeyError, TypeError, AttributeError, UsageError) as exc:
        raise ValueError(f"{name!r} does not describe a journal: {exc!r}") from exc
    if not whole:
        raise ValueError(f"{name!r} does not describe a journal: {reprlib.repr(about)}")
    return journal


def _without_worker(journal: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in journal.items() if key != "worker"}


def _read(file: BufferedReader) -> list[bytes]:
    frames, size, whole = [], 0, os.fstat(file.fileno()).st_size
    while size < READ_BYTES and (head := file.read(4)):
        length = int.from_bytes(head, "big")
        if length > whole:
            raise ValueError(f"{Path(file.name).name!r} ends before its last message")
        frames.append(file.read(length))
        check_parts(frames[-1])
        size += length
    return frames


def orphaned_workers(store: RunStore, cluster: str) -> list[OrphanedWorker]:
    """Return stand-ins for the lost workers of a cluster, one for each persisted journal of an incomplete run."""
    found: list[OrphanedWorker] = []
    for info in _left(store):
        if info.cluster == cluster:
            with _warned(info):
                found += _workers(info)
    return found


def complete(store: RunStore, *, cluster: str | None = None) -> list[Run]:
    """Complete runs from persisted journals, record in the store how they ended, and return them.

    - A run is completed if there are journals for all its ranks.
    - Runs of ``cluster``, which no longer has any workers, are completed even if journals are missing.
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
    """Yield the runs with persisted journals and no driver. Remove the journals of runs that are already complete."""
    for info in store.list():
        if not _headers(info.folder):
            continue
        if not info.status.ended or info.status is Status.LOST:
            if not _is_led(info) and _is_own(info):
                yield info
        else:
            shutil.rmtree(info.folder / LEFT_RECORDS, ignore_errors=True)


def _is_own(info: RunInfo) -> bool:
    """Return whether only this user can have written the journals of a run; otherwise, warn the user.

    A run that is taken over executes the code in its journals, and shows the output in them.
    """
    with _warned(info):
        if (fault := other_writer(info.folder / LEFT_RECORDS)) is None:
            return True
        raise ValueError(f"other users may have written them: {fault}. The end of this run is not recorded")
    return False


def _is_led(info: RunInfo) -> bool:
    """Return whether a driver leads the run.

    A driver on another host counts as running if it has written ``run.json`` since the journals were persisted.
    """
    if info.status is Status.LOST:
        return False
    if info.driver.get("host") == socket.gethostname():
        return True
    left = max(header.lstat().st_mtime for header in _headers(info.folder))
    return (info.folder / "run.json").stat().st_mtime > left


def _is_whole(info: RunInfo) -> bool:
    """Return whether all ranks have journals. Never true for elastic runs, in which ranks can share a number."""
    records: list[dict[str, Any]] = []
    with _warned(info):
        records = [_read_header(header) for header in _headers(info.folder)]
    ranks = {record["rank"] for record in records}
    return bool(ranks >= set(range(info.size)) and records) and not any(one["about"].get("elastic") for one in records)


def _workers(info: RunInfo) -> list[OrphanedWorker]:
    return [OrphanedWorker(header) for header in _headers(info.folder)]


@contextmanager
def _warned(info: RunInfo) -> Iterator[None]:
    """Turn errors in journals into a warning, because they must not hide other runs.

    Many types of errors are possible, because a kernel can write any message to its journal.
    """
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, RunNotFoundError) as error:
        warnings.warn(
            f"The journals that workers saved of run {info.id!r} cannot be read: {reason(error)}", stacklevel=4
        )


def _headers(folder: Path) -> list[Path]:
    found = (folder / LEFT_RECORDS).glob("[!.]*.json")
    return sorted(header for header in found if os.path.lexists(header.with_suffix(".frames")))


def _complete(loop: LoopThread, store: RunStore, info: RunInfo) -> Run | None:
    """Complete a run unless another process is doing so, and remove its journals once the result is on disk."""
    folder = info.folder / LEFT_RECORDS
    with _warned(info), _claimed(folder) as claimed:
        if claimed and _headers(info.folder):
            run = loop.call(_complete_from_journals(store, info))
            if read_info(info.folder).status is run.status:
                shutil.rmtree(folder, ignore_errors=True)
            return run
    return None


@contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
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
    [found] = await find_runs(_workers(info))
    run, router = restore_run(found, store, write=True), MessageRouter()
    router.runs[run.id] = run
    readers, sink = found.readers(router.to_run), partial(_take, run)
    if found.elastic is None:
        replies: Sequence[Reply] = await all_or_first_error([reader.read(sink) for reader in readers])
    else:
        replies = await follow_to_end(readers, sink)
    error = str(rank_error(replies)) if any(reply.status != "ok" for reply in replies) else None
    run.finish(Status.FAILED if error else Status.FINISHED, error, ended=found.ended)
    return run


def _take(run: Run, rank: int, kind: str, content: dict[str, Any], position: JournalPosition | None) -> None:
    if kind == "stream":
        run.add_log(rank, content["text"], position, content["printed"])
