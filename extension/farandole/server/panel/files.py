"""Logs and reports of runs, read from disk: in chunks, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from farandole.exceptions import RunNotFoundError
from farandole.protocol import Kind, report_from_json
from farandole.runs.model import RunInfo
from farandole.runs.positions import rank_files
from farandole.runs.store import read_lines
from farandole.runs.view_files import VIEW
from farandole.server.panel import wire
from farandole.server.worker.logbook import LOG_CHUNK_BYTES, whole_characters

CHUNK_ROWS = 2_000


def read_log(info: RunInfo, rank: int, offset: int, limit: int = LOG_CHUNK_BYTES) -> wire.LogPart:
    """Return a chunk of a rank's output from a byte on; a negative offset counts from the end.

    Raises RunNotFoundError if the run has no such rank.
    """
    path = info.folder / "logs" / f"rank-{rank}.log"
    if not path.exists() and not 0 <= rank < info.size:
        raise RunNotFoundError(f"run {info.id} has no rank {rank}; it has the ranks 0-{info.size - 1}")
    begin, size, data = _read_chunk(path, offset, min(limit, LOG_CHUNK_BYTES))
    return {
        "run": info.id,
        "rank": rank,
        "worker": None,
        "offset": begin,
        "next": begin + len(data),
        "size": size,
        "text": data.decode("utf-8", "replace"),
    }


def _read_chunk(path: Path, offset: int, limit: int) -> tuple[int, int, bytes]:
    with suppress(FileNotFoundError), path.open("rb") as file:
        size = file.seek(0, io.SEEK_END)
        begin = file.seek(min(offset, size) if offset >= 0 else max(0, size + offset))
        # An offset from the end may point into the middle of a UTF-8 character; its remaining bytes are skipped.
        data = file.read(limit)
        skipped = next((place for place, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0) if offset < 0 else 0
        return begin + skipped, size, whole_characters(data[skipped:])
    return 0, 0, b""


def csv_chunks(info: RunInfo) -> Iterator[str]:
    """Yield all reports as CSV, rank by rank: rank, time, step, epoch and a column for each series."""
    names = _series(info)
    yield _rows([["rank", "time", "step", "epoch", *names]])
    rows = []
    for rank, path in rank_files(info.folder / "metrics", ".jsonl"):
        for record in read_lines(path):
            # A full disk leaves lines that are not reports.
            with suppress(KeyError, TypeError, ValueError, AttributeError):
                if record.get("kind") == Kind.REPORT:
                    rows.append(_row(rank, record, names))
            if len(rows) >= CHUNK_ROWS:
                yield _rows(rows)
                rows = []
    yield _rows(rows)


def _row(rank: int, record: dict[str, Any], names: list[str]) -> list[Any]:
    report = report_from_json(record)
    values = (report.values.get(name) for name in names)
    return [rank, report.time, report.step, report.epoch, *values]


def _rows(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _series(info: RunInfo) -> list[str]:
    """Return the names of all series: from the view of an ended run, otherwise from all reports."""
    if info.status.ended:
        with suppress(OSError, ValueError, KeyError):
            view = json.loads((info.folder / VIEW).read_bytes())
            if view["ended"]:
                return [series["name"] for series in view["series"]]
    paths = [path for _, path in rank_files(info.folder / "metrics", ".jsonl")]
    values = (record.get("values") for path in paths for record in read_lines(path))
    return list(dict.fromkeys(name for known in values if isinstance(known, dict) for name in known))
