"""Copies journals to the run's folder on the user's volume, because a worker may stop before a driver reads them."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path

from farandole.protocol import DELETED_RUNS, LEFT_RECORDS, Status
from farandole.reading import check_parents, open_new, read_json
from farandole.server.journal.journal import Journal


async def persist(journal: Journal) -> bool:
    """Write an ended journal to the run's folder, unless a driver has already recorded there that the run has ended.

    Returns True if the folder then contains the journal or the driver's record, and if the user has deleted the run.
    Returns False if the run has no folder, or if the folder cannot be reached from this machine or cannot be written.
    """
    folder = journal.about.get("folder")
    if not folder:
        return False
    try:
        if await asyncio.to_thread(_is_deleted, Path(folder)):
            return True
        if await asyncio.to_thread(_is_running, Path(folder)):
            await _write(journal, Path(folder) / LEFT_RECORDS)
    except (OSError, ValueError, KeyError):
        return False
    return True


def _is_deleted(folder: Path) -> bool:
    return os.path.lexists(folder.parent / DELETED_RUNS / folder.name)


def _is_running(folder: Path) -> bool:
    return not Status(read_json(folder, "run.json")["status"]).ended


async def _write(journal: Journal, folder: Path) -> None:
    frames, header = folder / f"{journal.kernel_id}.frames", folder / f"{journal.kernel_id}.json"
    worker = os.environ.get("FARANDOLE_WORKER", "local")
    try:
        await asyncio.to_thread(folder.mkdir, mode=0o755, exist_ok=True)
        check_parents(folder.parent, f"{folder.name}/{frames.name}")
        await _copy(journal, frames)
        # The header is written last, so that its existence shows that the frames are complete.
        await asyncio.to_thread(_put, header, json.dumps({**journal.describe(), "led": False, "worker": worker}))
    except OSError:
        with suppress(OSError):
            frames.unlink(missing_ok=True)
        raise


async def _copy(journal: Journal, path: Path) -> None:
    after = 0
    with open_new(path) as file:
        while after < journal.count:
            data, after = journal.read(after)
            await asyncio.to_thread(_write_all, file, data)
        await asyncio.to_thread(os.fsync, file.fileno())


def _write_all(file: FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _put(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with open_new(temporary) as file:
        _write_all(file, text.encode())
    temporary.replace(path)
