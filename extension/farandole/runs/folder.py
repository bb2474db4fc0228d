"""Reads the files in the folder of one run. `farandole.runs.store` describes these files."""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from farandole.exceptions import RunUnreadableError
from farandole.protocol import Status
from farandole.reading import open_regular, read_bytes, read_json, reason
from farandole.runs.lifecycle.heartbeat import is_silent
from farandole.runs.model import RunInfo
from farandole.runs.positions import FOLDERS, rank_files
from farandole.runs.run import Run
from farandole.sizes import size_text

LOG_TAIL_BYTES = 8_000
LINE_BYTES = 2**20
CODE_BYTES = 4_000_000


def run_names(store: Path) -> Sequence[str]:
    """Return the sorted names of the run folders in a store. Raises OSError if the store cannot be read."""
    with os.scandir(store) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # A symbolic link that points to itself raises OSError.
    with suppress(OSError):
        return entry.is_dir()
    return False


def read_info(folder: Path) -> RunInfo:
    """Read ``run.json``. If the driver died during the run, the status is `Status.LOST`. Raises RunUnreadableError."""
    return as_it_stands(stored_info(folder))


def stored_info(folder: Path) -> RunInfo:
    """Read ``run.json`` and use the folder's name as the run's id. Raises RunUnreadableError."""
    try:
        return replace(RunInfo.from_json(read_json(folder, "run.json"), folder), id=folder.name)
    except (OSError, ValueError) as exc:
        raise RunUnreadableError(f"run {folder.name!r} cannot be read: {reason(exc)}") from exc


def as_it_stands(info: RunInfo) -> RunInfo:
    """Return ``info``, with the status `Status.LOST` if the driver ended without recording the end of the run.

    A driver on another host counts as ended if it has given no sign of life for a while (see
    `farandole.runs.lifecycle.heartbeat`).
    """
    if info.status is Status.RUNNING and (driver_is_gone(info.driver) or _is_silent_elsewhere(info)):
        return replace(info, status=Status.LOST, error=info.error or "the driver ended before the run did")
    return info


def _is_silent_elsewhere(info: RunInfo) -> bool:
    return info.driver.get("host") != socket.gethostname() and is_silent(info.folder)


def this_process() -> dict[str, Any]:
    """Return the host, the process id and the start time, which together identify this process."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": psutil.Process().create_time()}


def driver_is_gone(driver: Mapping[str, Any]) -> bool:
    """Return whether a driver's process has ended. Return False for another host, where this cannot be checked."""
    if driver.get("host") != socket.gethostname():
        return False
    try:
        started = psutil.Process(int(driver["pid"])).create_time()
    except psutil.NoSuchProcess:
        return True
    return abs(started - float(driver["started"])) > 1


def feed(run: Run, ranks: Container[int] | None = None) -> None:
    """Add the content of the files of ``ranks``, or of all ranks, to a run. Warn about files that cannot be read."""
    for folder, suffix in FOLDERS.items():
        for rank, name in rank_files(run.folder, folder, suffix):
            if ranks is None or rank in ranks:
                with warned(run.id):
                    _feed(run, rank, name)


def _feed(run: Run, rank: int, name: str) -> None:
    if name.startswith("logs/"):
        run.add_log(rank, tail(run.folder, name))
    elif not name.startswith("times/"):
        for record in read_lines(run.folder, name):
            add_valid(run, rank, record)


def add_valid(run: Run, rank: int, record: dict[str, Any]) -> None:
    """Add a record from a file to a run. Ignore invalid records, because a full disk can leave incomplete ones."""
    with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
        run.add_records(rank, record)


@contextmanager
def warned(run: str) -> Iterator[None]:
    """Turn an error from reading one file of a run into a warning, so that the other files are still read."""
    try:
        yield
    except (OSError, ValueError) as error:
        warnings.warn(f"A file of run {run!r} cannot be read and is left out: {reason(error)}", stacklevel=5)


def read_lines(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines. Invalid lines are skipped. Raises the errors of `raw_lines`."""
    for line in raw_lines(folder, name):
        if (record := parsed_line(line)) is not None:
            yield record


def raw_lines(folder: Path, name: str) -> Iterator[bytes]:
    """Yield the lines of a file of JSON lines, without parsing them.

    Raises ValueError if a line is longer than `LINE_BYTES`. Farandole writes no such lines, so the file is damaged. For
    example, it may contain a block of zeros.
    """
    with open_regular(folder, name) as file:
        while line := file.readline(LINE_BYTES + 1):
            if len(line) > LINE_BYTES:
                raise ValueError(f"{name!r} has a line of more than {size_text(LINE_BYTES)}")
            yield line


def parsed_line(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None if the line does not contain a valid object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def tail(folder: Path, name: str) -> str:
    """Return the last `LOG_TAIL_BYTES` bytes of a log as text."""
    with open_regular(folder, name) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        return file.read(LOG_TAIL_BYTES).decode("utf-8", "replace")


def code_of(info: RunInfo) -> str:
    """Return the code of a run's cell, or an empty string if the file is missing or unreadable.

    Warn if the file is unreadable.
    """
    with warned(info.id), suppress(FileNotFoundError):
        return read_code(info.folder)
    return ""


def read_code(folder: Path) -> str:
    """Return the code of a run's cell. Raises OSError or ValueError if the code cannot be read."""
    return read_bytes(folder, "code.py", CODE_BYTES).decode("utf-8", "replace")
