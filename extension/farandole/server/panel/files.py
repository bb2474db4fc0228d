"""Reads the logs of runs in chunks, and converts the reports of runs to CSV."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from farandole.exceptions import RunNotFoundError, RunUnreadableError
from farandole.protocol import Kind, is_rank, report_from_json
from farandole.reading import open_regular, reason
from farandole.runs.folder import raw_lines, read_lines
from farandole.runs.model import RunInfo
from farandole.runs.positions import rank_files
from farandole.server.panel import wire
from farandole.server.panel.views import MOST_SERIES, read_view
from farandole.server.worker.logbook import LOG_CHUNK_BYTES, whole_characters

CHUNK_CELLS = 20_000


def read_log(info: RunInfo, rank: int, offset: int, limit: int = LOG_CHUNK_BYTES) -> wire.LogPart:
    """Return a chunk of a rank's output, beginning at byte ``offset``. A negative offset counts from the end.

    Raises RunNotFoundError if the run has no such rank, and RunUnreadableError if the log cannot be read.
    """
    check_rank(info, rank)
    try:
        begin, size, data = _read_chunk(info.folder, log_of(rank), offset, min(limit, LOG_CHUNK_BYTES))
    except (OSError, ValueError) as exc:
        raise RunUnreadableError(f"the log of rank {rank} of run {info.id!r} cannot be read: {reason(exc)}") from exc
    return {
        "run": info.id,
        "rank": rank,
        "worker": None,
        "offset": begin,
        "next": begin + len(data),
        "size": size,
        "text": data.decode("utf-8", "replace"),
    }


def check_rank(info: RunInfo, rank: int) -> None:
    """Check that a run has a rank. Raises RunNotFoundError if it does not."""
    if not is_rank(rank) or (rank >= info.size and not (info.folder / log_of(rank)).exists()):
        raise RunNotFoundError(f"run {info.id!r} has no rank {rank}; it has the ranks 0-{info.size - 1}")


def log_of(rank: int) -> str:
    """Return the name of the file with the output of a rank."""
    return f"logs/rank-{rank}.log"


def _read_chunk(folder: Path, name: str, offset: int, limit: int) -> tuple[int, int, bytes]:
    with suppress(FileNotFoundError), open_regular(folder, name) as file:
        size = file.seek(0, io.SEEK_END)
        begin = file.seek(min(offset, size) if offset >= 0 else max(0, size + offset))
        # An offset from the end may be in the middle of a UTF-8 character, whose remaining bytes are then skipped.
        data = file.read(limit)
        skipped = next((place for place, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) if offset < 0 else 0
        return begin + skipped, size, whole_characters(data[skipped:])
    return 0, 0, b""


def check_reports(info: RunInfo) -> None:
    """Raise RunUnreadableError if a file of reports cannot be read to its end.

    This check reads all files without parsing them. It runs before a download, because a download that has begun can no
    longer report an error.
    """
    for _, name in rank_files(info.folder, "metrics", ".jsonl"):
        try:
            deque(raw_lines(info.folder, name), maxlen=0)
        except (OSError, ValueError) as exc:
            raise RunUnreadableError(f"the reports of run {info.id!r} cannot be read: {reason(exc)}") from exc


def csv_chunks(info: RunInfo) -> Iterator[str]:
    """Yield all reports as CSV, one rank after the other.

    The columns are rank, time, step and epoch, followed by one column for each series.
    """
    names = _series(info)
    yield _rows([["rank", "time", "step", "epoch", *names]])
    rows: list[list[Any]] = []
    for rank, name in rank_files(info.folder, "metrics", ".jsonl"):
        for record in read_lines(info.folder, name):
            rows += _report_rows(rank, record, names)
            if len(rows) * (len(names) + 4) >= CHUNK_CELLS:
                yield _rows(rows)
                rows = []
    yield _rows(rows)


def _report_rows(rank: int, record: dict[str, Any], names: list[str]) -> list[list[Any]]:
    """Return a list with the row of a report, or an empty list if the record is not a valid report.

    A full disk can leave invalid lines in the file.
    """
    with suppress(KeyError, TypeError, ValueError, AttributeError, OverflowError):
        if record.get("kind") == Kind.REPORT:
            return [_row(rank, record, names)]
    return []


def _row(rank: int, record: dict[str, Any], names: list[str]) -> list[Any]:
    report = report_from_json(record)
    values = (report.values.get(name) for name in names)
    return [rank, report.time, report.step, report.epoch, *values]


def _rows(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _series(info: RunInfo) -> list[str]:
    """Return the names of all series, from the view if the run has ended, otherwise from all reports."""
    if info.status.ended:
        with suppress(OSError, ValueError):
            view = read_view(info.folder)
            if view["ended"]:
                return [series["name"] for series in view["series"]]
    names: dict[str, None] = {}
    for _, path in rank_files(info.folder, "metrics", ".jsonl"):
        for record in read_lines(info.folder, path):
            found = record.get("values")
            names |= dict.fromkeys(found) if isinstance(found, dict) and len(names) < MOST_SERIES else {}
    return list(names)[:MOST_SERIES]
