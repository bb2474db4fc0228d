"""Data classes that describe a run and its ranks."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from farandole.exceptions import DeadlineError
from farandole.protocol import Status
from farandole.reading import check_types
from farandole.runs.writer import strict_json

RankStatus = Literal["running", "done", "failed", "stopped", "dead"]

LOG_LINES = 5
"""How many of the last lines of a rank's output are kept in memory."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of ``run.json``; times are seconds since the epoch."""

    id: str
    folder: Path
    name: str = ""
    status: Status = Status.RUNNING
    error: str | None = None
    started: float = 0.0
    ended: float | None = None
    backend: str = ""
    cluster: str = ""
    size: int = 0
    workers: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] | None = None
    cwd: str = ""
    driver: dict[str, Any] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    resumed_from: str | None = None
    """Id of the run whose checkpoint this run has continued from."""
    notebook: str = ""
    """Absolute path of the notebook that started the run.

    This, ``kernel`` and ``cell`` are empty if no notebook started it.
    """
    kernel: str = ""
    cell: str = ""

    @property
    def seconds(self) -> float:
        """How long the run took, or has taken so far."""
        return (self.ended or time.time()) - self.started

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the content of ``run.json`` as text."""
        record = {name: value for name, value in vars(self).items() if name != "folder"}
        return strict_json({**record, "code": "code.py"}, indent=indent) + "\n"

    @classmethod
    def from_json(cls, record: dict[str, Any], folder: Path) -> RunInfo:
        """Parse a record that `to_json` wrote. Unknown keys are ignored. Raises ValueError for an invalid value."""
        for key in ("id", "status", "started"):
            if key not in record:
                raise ValueError(f"run.json has no {key!r}")
        known = {name: record[name] for name in cls.__dataclass_fields__ if name in record and name != "folder"}
        check_types(known, _KINDS, "run.json")
        known |= {name: tuple(known[name]) for name in ("workers", "notices") if name in known}
        known["results"] = {int(rank): value for rank, value in record.get("results", {}).items()}
        known |= {"status": Status(record["status"]), "started": float(record["started"]), "folder": folder}
        return cls(**known)


_KINDS = {
    "status": "status",
    "error": "text or null",
    "started": "time",
    "ended": "time or null",
    "size": "count of ranks",
    "workers": "texts",
    "options": "object",
    "versions": "object",
    "git": "object or null",
    "driver": "process",
    "results": "results",
    "notices": "texts",
    "resumed_from": "text or null",
}
"""The types of the values in ``run.json``. Values that are not listed are texts."""


class LogTail:
    """The last lines of a rank's output. A carriage return overwrites the line, as in a terminal."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self._open = ""

    def add(self, text: str) -> None:
        """Add output."""
        *lines, self._open = (self._open + text[-20_000:]).split("\n")
        self._lines.extend(map(_shown, lines[-LOG_LINES:]))
        self._open = self._open[-2_000:]

    def lines(self) -> list[str]:
        """Return at most `LOG_LINES` lines. The last line may be incomplete."""
        last = [_shown(self._open)] if self._open else []
        return [*self._lines, *last][-LOG_LINES:]


def _shown(line: str) -> str:
    return _ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2])[:500]


@dataclass(slots=True)
class RankView:
    """The latest state of one rank."""

    rank: int
    worker: str = ""
    state: RankStatus = "running"
    usage: dict[str, Any] = field(default_factory=dict)
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last progress message of each name."""
    log: LogTail = field(default_factory=LogTail)


def still_going(run_id: str, seconds: float | None) -> DeadlineError:
    """Return the error for a run that has not ended in time."""
    return DeadlineError(f"run {run_id} has not ended within {seconds:g} s; it continues, and you can wait again")
