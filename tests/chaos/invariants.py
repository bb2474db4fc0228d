"""Invariants that a run's files must satisfy after any fault. Each check yields a sentence for each violation."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from farandole.protocol import CHECKPOINTS, Kind, Status
from farandole.ranks.checkpoints import files
from farandole.runs.model import RunInfo

from tests.chaos.cell import SAMPLES, in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.chaos.cell import Life

QUEUED_SECONDS = 5.0
"""How many seconds of its last reports and log lines a killed process may lose, because they were still queued."""
LINE = re.compile(r"step \d+ at \d+\.\d+(e[+-]?\d+)?")
REASON = re.compile(r"so (it|the run) was stopped|fewer than the|could not be reached")
"""Words in the allowed reasons for a failure. "rank" is not enough, because errors of a cell also name ranks."""


def broken(folder: Path, lives: Sequence[Life]) -> list[str]:
    """Return the violations in the files of a run that has ended. ``lives`` holds the steps that its ranks recorded."""
    found = [*_record(folder), *_lines(folder), *_checkpoints(folder)]
    # The later checks can read only files that have passed these checks.
    return found or [*_reports(folder, lives), *_logs(folder, lives), *_samples(folder)]


def read_info(folder: Path) -> RunInfo:
    """Read ``run.json``. Raises OSError, ValueError, TypeError, KeyError or AttributeError if this fails."""
    return RunInfo.from_json(json.loads((folder / "run.json").read_text(encoding="utf-8")), folder)


def _record(folder: Path) -> Iterator[str]:
    try:
        info = read_info(folder)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        yield f"run.json cannot be read: {exc!r}"
        return
    if info.status is Status.FAILED and REASON.search(info.error or ""):
        return
    if info.status is not Status.FINISHED or not info.results:
        yield f"the run is {info.status}, with {len(info.results)} results, for the reason {info.error!r}"


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*/*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            # The times of logs are pairs of an offset and a time; all other records are objects.
            if not isinstance(record, list if path.parent.name == "times" else dict):
                yield f"{path.relative_to(folder)}:{number} is damaged: {line[:80]!r}"
        if not path.read_bytes().endswith(b"\n"):
            yield f"{path.relative_to(folder)} ends in the middle of a line"


def _checkpoints(folder: Path) -> Iterator[str]:
    places = files.checkpoint_paths(folder / CHECKPOINTS)
    for place in places:
        try:
            files.read(place)
        except files.DamagedError as exc:
            yield f"the checkpoint {place.name} is damaged: {exc}"
    if not places:
        yield "there is no checkpoint"
    for left in sorted((folder / CHECKPOINTS).glob(".*")):
        yield f"{left.name} is left over from a checkpoint"


def _reports(folder: Path, lives: Sequence[Life]) -> Iterator[str]:
    reports = [report for path in folder.glob("metrics/*.jsonl") for report in _read(path)]
    for (rank, time), count in Counter((report["rank"], report["time"]) for report in reports).items():
        if count > 1:
            yield f"rank {rank}'s report of {time} appears {count} times"
    there = {(report["rank"], report["step"], report["values"]["at"]) for report in reports}
    yield from _missing(lives, lambda step: (step.rank, step.step, step.at) in there, "reports")


def _logs(folder: Path, lives: Sequence[Life]) -> Iterator[str]:
    lines = [line for path in folder.glob("logs/*.log") for line in path.read_text(encoding="utf-8").splitlines()]
    ours = Counter(line for line in lines if line.startswith("step"))
    yield from (f"a line of a log is damaged: {line[:80]!r}" for line in ours if not LINE.fullmatch(line))
    # Two ranks may report the same step in the same microsecond, and then print the same line.
    said = Counter(f"step {step.step} at {step.at!r}" for step in in_order(lives))
    for line, count in ours.items():
        if count > max(1, said[line]):
            yield f"a log line appears {count} times: {line}"
    yield from _missing(lives, lambda step: f"step {step.step} at {step.at!r}" in ours, "lines of the log")


def _missing(lives: Sequence[Life], there: Any, what: str) -> Iterator[str]:
    for life in lives:
        until = life.steps[-1].at - (0.0 if life.ended else QUEUED_SECONDS)
        missing = [step.step for step in life.steps if step.at <= until and not there(step)]
        if missing:
            who = f"process {life.steps[-1].pid} (last rank {life.steps[-1].rank})"
            yield f"{len(missing)} {what} of {who} are missing, of steps {missing[0]} to {missing[-1]}"


def _samples(folder: Path) -> Iterator[str]:
    """Check that each epoch contains every sample once. The last epoch may be incomplete."""
    for rank, result in read_info(folder).results.items():
        seen = Counter(result["seen"])
        counts = {seen[sample] for sample in range(SAMPLES)}
        if max(counts) - min(counts) > 1:
            yield f"rank {rank} has seen samples {min(counts)} to {max(counts)} times"


def _read(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] == Kind.REPORT:
            yield record
