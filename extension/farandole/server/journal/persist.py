"""A worker leaves its record of a run on the user's volume: it may be stopped before a driver comes back."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from farandole.protocol import LEFT_RECORDS, Status

if TYPE_CHECKING:
    from farandole.server.journal.journal import Journal


async def leave(record: Journal) -> bool:
    """Write a record that has ended beside its run's files, unless a driver has ended the run there.

    Return whether the run's end is on the volume now. It is not where the run's folder is not on a disk of this
    machine, or where that takes nothing.
    """
    folder = record.about.get("folder")
    if not folder:
        return False
    try:
        if await asyncio.to_thread(_goes_on, Path(folder)):
            await _write(record, Path(folder) / LEFT_RECORDS)
    except (OSError, ValueError, KeyError):
        return False
    return True


def _goes_on(folder: Path) -> bool:
    status = json.loads((folder / "run.json").read_text(encoding="utf-8"))["status"]
    return not Status(status).ended


async def _write(record: Journal, folder: Path) -> None:
    frames, header = folder / f"{record.kernel_id}.frames", folder / f"{record.kernel_id}.json"
    worker = os.environ.get("FARANDOLE_WORKER", "local")
    try:
        await asyncio.to_thread(folder.mkdir, exist_ok=True)
        await _copy(record, frames)
        # Last: whoever finds it finds all frames.
        await asyncio.to_thread(_put, header, json.dumps({**record.describe(), "led": False, "worker": worker}))
    except OSError:
        with suppress(OSError):
            frames.unlink(missing_ok=True)
        raise


async def _copy(record: Journal, path: Path) -> None:
    after = 0
    with path.open("wb", buffering=0) as file:
        while after < record.count:
            data, after = record.read(after)
            await asyncio.to_thread(_write_all, file, data)
        await asyncio.to_thread(os.fsync, file.fileno())


def _write_all(file: FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def _put(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
