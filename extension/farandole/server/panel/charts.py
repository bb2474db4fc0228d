"""Returns views of runs, which are either written by the runs' drivers or made from samples of the runs' files."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from farandole.protocol import Kind, is_number
from farandole.reading import Version, open_regular, reason, size_of, versions_of
from farandole.runs.folder import add_valid, parsed_line, tail
from farandole.runs.model import RunInfo
from farandole.runs.positions import rank_files
from farandole.runs.run import Run
from farandole.runs.view import series_view, view_of
from farandole.runs.view_files import LINES, VIEW
from farandole.server.panel import wire, wire_routes
from farandole.server.panel.views import MOST_SERIES, read_view

SAMPLE_BYTES = 8_000_000
"""How many bytes of reports are read to make a view. If a run has more, evenly spaced blocks are read."""
BLOCK = 8_192
KEPT_SECONDS = 30.0
USAGE = {
    "cpu": "cpu_percent",
    "memory": "memory_bytes",
    "gpu": "gpu_percent",
    "gpu_memory": "gpu_memory_bytes",
    "received": "received_bytes",
    "sent": "sent_bytes",
}
"""The key of the values in usage records, by the name of the series."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A view of a run. ``sampled`` is True if the view was made from only a sample of the run's reports."""

    view: wire.RunView
    sampled: bool


class Charts:
    """Returns views of runs. Views made from reports are cached for `KEPT_SECONDS`. Any thread may use this class."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, bool], tuple[float, Chart]] = {}
        self._making = threading.Lock()

    def version(self, info: RunInfo, *, by_rank: bool = False) -> tuple[Version, ...]:
        """Return a version that changes whenever the view of a run changes: the times and sizes of the run's files."""
        names = (VIEW, "run.json", "metrics", *([LINES] if by_rank else []))
        return versions_of(info.folder / name for name in names)

    def of(self, info: RunInfo, summary: wire.RunSummary, *, by_rank: bool = False) -> Chart:
        """Return the view of a run. If ``by_rank`` is True, each series contains a line for each rank."""
        try:
            chart = Chart(view=read_view(info.folder, by_rank=by_rank), sampled=False)
        except (OSError, ValueError):
            chart = self._sampled(info, by_rank=by_rank)
        return Chart(view=_updated(chart.view, summary, info), sampled=chart.sampled)

    def _sampled(self, info: RunInfo, *, by_rank: bool) -> Chart:
        now, key = time.monotonic(), (info.id, by_rank)
        # Concurrent requests for the same view wait for this lock, so that the files are read only once.
        with self._making:
            self._made = {one: made for one, made in self._made.items() if now - made[0] < KEPT_SECONDS}
            if key not in self._made:
                self._made[key] = now, sample(info, by_rank=by_rank)
            return self._made[key][1]


def _updated(view: wire.RunView, summary: wire.RunSummary, info: RunInfo) -> wire.RunView:
    """Return a view updated from ``run.json``, which may be newer than the view if the run's driver has ended."""
    ended = not summary["goes_on"]
    ranks = [
        cast("wire.RankRow", {**row, "state": "stopped"}) if ended and row["state"] == "running" else row
        for row in view["ranks"]
    ]
    return {
        **view,
        "name": summary["name"],
        "status": summary["status"],
        "ended": ended,
        "error": summary["error"],
        "notices": [*info.notices, *(notice for notice in view["notices"] if notice not in info.notices)],
        "warnings": [*info.warnings, *(warning for warning in view["warnings"] if warning not in info.warnings)],
        "elapsed": math.floor(summary["seconds"]),
        "seconds_left": None if ended else view["seconds_left"],
        "progress": [] if ended else view["progress"],
        "ranks": ranks,
    }


def sample(info: RunInfo, *, by_rank: bool = False) -> Chart:
    """Make a view from the files of a run, reading at most `SAMPLE_BYTES` of reports.

    Files that cannot be read are omitted and reported in the notices of the view.
    """
    sampling = _Sampling(info)
    files = list(rank_files(info.folder, "metrics", ".jsonl"))
    for rank, name in files:
        sampling.read(rank, name, SAMPLE_BYTES // len(files))
    for rank, name in rank_files(info.folder, "usage", ".jsonl"):
        sampling.read(rank, name, BLOCK)
    logs = list(rank_files(info.folder, "logs", ".log"))
    for rank, name in logs:
        with sampling.noticing():
            sampling.run.add_log(rank, tail(info.folder, name))
    view = view_of(sampling.run, time.time(), per_rank=by_rank)
    # The tail of a log may have the same size after more output.
    view["output_bytes"] = sum(size_of(info.folder / name) for _, name in logs)
    return Chart(view=cast("wire.RunView", view), sampled=sampling.sampled)


def usage(info: RunInfo, *, by_rank: bool = False) -> wire_routes.RunUsage:
    """Return the usage of a run's ranks over time, reading at most `SAMPLE_BYTES` of records.

    Files that cannot be read are omitted and reported in the notices.
    """
    sampling = _UsageSampling(info)
    files = list(rank_files(info.folder, "usage", ".jsonl"))
    for rank, name in files:
        sampling.read(rank, name, SAMPLE_BYTES // len(files))
    found = [series_view(one, info.started, per_rank=by_rank) for one in sampling.run.series(by_rank=by_rank)]
    series = [cast("wire.Series", {**one, "x_label": "seconds", "time": []}) for one in found]
    notices = [notice for notice in sampling.run.notices if notice not in info.notices]
    return {"id": info.id, "notices": notices, "series": series}


class _Sampling:
    """Fills a run with records from its files."""

    def __init__(self, info: RunInfo) -> None:
        self.run = Run(info, "")
        self.sampled = False
        self._series: set[tuple[int, str]] = set()

    def read(self, rank: int, name: str, share: int) -> None:
        """Add the records of a file. From a file longer than ``share`` bytes, add only samples."""
        with self.noticing(), open_regular(self.run.folder, name) as file:
            if name.startswith("metrics/"):
                self.sampled = self.sampled or os.fstat(file.fileno()).st_size > share
            for record in _records(file, share):
                self._add(rank, record)

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """If a file cannot be read, add a notice to the run instead of raising an error."""
        try:
            yield
        except (OSError, ValueError) as exc:
            text = f"A file of this run cannot be read and is left out: {reason(exc)}"
            self.run.notice(text, warning=True)

    def _add(self, rank: int, record: dict[str, Any]) -> None:
        values = record.get("values")
        if isinstance(values, dict):
            found = self._series | {(rank, name) for name in values}
            if len(found) > MOST_SERIES:
                return
            self._series = found
        add_valid(self.run, rank, record)


class _UsageSampling(_Sampling):
    """Fills a run with its usage records as if they were reports, with the seconds since its start as steps."""

    def _add(self, rank: int, record: dict[str, Any]) -> None:
        time = record.get("time")
        if is_number(time):
            values = {name: record[key] for name, key in USAGE.items() if is_number(record.get(key))}
            step = max(0, int(time - self.run.info.started))
            super()._add(rank, {**record, "kind": Kind.REPORT, "step": step, "epoch": None, "values": values})


def _records(file: BinaryIO, share: int) -> Iterator[dict[str, Any]]:
    """Yield the records of a file. From a file longer than ``share`` bytes, read only evenly spaced blocks."""
    size = os.fstat(file.fileno()).st_size
    if size <= share:
        yield from _parsed(file.read(share).split(b"\n"))
        return
    blocks = max(2, share // BLOCK)
    for number in range(blocks):
        start = (size - BLOCK) * number // (blocks - 1)
        file.seek(start)
        lines = file.read(BLOCK).split(b"\n")
        # The first and last lines of a block may be incomplete.
        yield from _parsed(lines[1 if start else 0 : -1])


def _parsed(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    return (record for line in lines if (record := parsed_line(line)) is not None)
