"""Finds when the output of a rank was printed, and where the output from a time on begins in its log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from farandole.exceptions import RunUnreadableError
from farandole.protocol import LATEST, is_number
from farandole.reading import open_regular, reason
from farandole.runs.folder import raw_lines
from farandole.runs.logs import RESOLUTION_SECONDS, times_of
from farandole.runs.model import RunInfo
from farandole.server.panel.problems import RefusedError
from farandole.server.worker.logbook import LOG_CHUNK_BYTES

Pair: TypeAlias = tuple[int, float]
"""An offset in a log, and when the output from there on was printed, in seconds since the epoch."""


class Moments:
    """The times of a log for ascending offsets. All times are None if they are not recorded or cannot be read."""

    def __init__(self, folder: Path, log: str) -> None:
        self._pairs = _without_errors(folder, log)
        self._next = next(self._pairs, None)
        self._time: float | None = None

    def of(self, offset: int) -> float | None:
        """Return when the output at ``offset`` was printed, at most a second too early."""
        while self._next is not None and self._next[0] <= offset:
            self._time = self._next[1]
            self._next = next(self._pairs, None)
        return self._time


def offset_at(info: RunInfo, rank: int, time: float) -> int:
    """Return the offset of the first line that a rank printed at or after ``time``, at most a second too early.

    Return the size of the log if there is no such line. Raises RefusedError if the times are not recorded, and
    RunUnreadableError if they cannot be read.
    """
    log = f"logs/rank-{rank}.log"
    try:
        found = _first(_pairs(info.folder, log), time)
        return _line_from(info.folder, log, found)
    except FileNotFoundError as exc:
        raise RefusedError(
            "unknown",
            f"the times of the output of rank {rank} of run {info.id!r} are not recorded, because it printed nothing "
            "or an earlier version wrote the run; search for a text instead",
        ) from exc
    except (OSError, ValueError) as exc:
        message = f"the times of the output of rank {rank} of run {info.id!r} cannot be read: {reason(exc)}"
        raise RunUnreadableError(message) from exc


def _first(pairs: Iterator[Pair], time: float) -> int | None:
    """Return the offset of the output at ``time``, or of the next output, or None if there is none."""
    before: Pair | None = None
    for pair in pairs:
        if pair[1] > time:
            within = before is not None and time - before[1] < RESOLUTION_SECONDS
            return before[0] if before is not None and within else pair[0]
        before = pair
    return before[0] if before is not None and time - before[1] < RESOLUTION_SECONDS else None


def _line_from(folder: Path, log: str, offset: int | None) -> int:
    """Return the beginning of the first line at or after ``offset``, or ``offset`` if a very long line contains it."""
    with open_regular(folder, log) as file:
        size = file.seek(0, 2)
        if not offset or offset > size:
            return size if offset is None else min(offset, size)
        file.seek(offset - 1)
        data = file.read(LOG_CHUNK_BYTES)
        return offset + max(0, data.find(b"\n"))


def _pairs(folder: Path, log: str) -> Iterator[Pair]:
    """Yield the pairs of a log without invalid ones. Raises OSError or ValueError if the file cannot be read."""
    for line in raw_lines(folder, times_of(log)):
        with suppress(ValueError, TypeError, RecursionError):
            offset, time = json.loads(line)
            if type(offset) is int and offset >= 0 and is_number(time) and 0 <= time < LATEST:
                yield offset, float(time)


def _without_errors(folder: Path, log: str) -> Iterator[Pair]:
    with suppress(OSError, ValueError):
        yield from _pairs(folder, log)
