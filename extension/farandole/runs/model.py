"""Data classes that describe a run and its ranks."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from farandole.exceptions import DeadlineError
from farandole.hyperparameters import Hyperparameter
from farandole.protocol import Status, checked_sync
from farandole.reading import check_types
from farandole.runs.terminal import TerminalLines
from farandole.runs.writer import strict_json

RankStatus = Literal["running", "done", "failed", "stopped", "dead"]

LOG_LINES = 5
"""Number of lines that are kept in memory from the end of a rank's output."""

OPEN_CHARACTERS = 2_000
"""Number of characters that are kept of each line that is not complete."""

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """The content of ``run.json``. Times are in seconds since the epoch."""

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
    config: dict[str, Hyperparameter] = field(default_factory=dict)
    """The hyper-parameters of the run, by name."""
    overrides: dict[str, Hyperparameter] = field(default_factory=dict)
    """The hyper-parameters that ``--config`` set. They take precedence over the values of the cell."""
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    data_sets: dict[str, str] = field(default_factory=dict)
    """The digest of each version of a data set on the ranks, such as ``{"imagenet@2": "sha256:9c3f..."}``."""
    git: dict[str, Any] | None = None
    cwd: str = ""
    driver: dict[str, Any] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Those notices that report a loss, a hang or a failure. Runs of older releases have none."""
    sync: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What the mode of ``fd.prepare(sync=...)`` costs each rank, by rank.

    The values are ``mode``, ``waiting`` (a share of the time, from 0 to 1, or None if it is not known),
    ``bytes_per_step`` and ``staleness``, in steps.
    """
    resumed_from: str | None = None
    """Id of the run from whose checkpoint this run continued, or None."""
    notebook: str = ""
    """Absolute path of the notebook that started the run.

    ``notebook``, ``kernel`` and ``cell`` are empty if the run was not started from a notebook.
    """
    kernel: str = ""
    cell: str = ""
    original_name: str = ""
    """The name with which the run was started, if the user has renamed the run.

    ``original_name``, ``tags`` and ``notes`` are not in ``run.json`` (see `farandole.runs.notes`).
    """
    tags: tuple[str, ...] = ()
    notes: str = ""

    @property
    def seconds(self) -> float:
        """The duration of the run in seconds, until now if the run has not ended."""
        return (self.ended or time.time()) - self.started

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return this info as the JSON text of ``run.json``."""
        record = {name: value for name, value in vars(self).items() if name not in _NOT_STORED}
        return strict_json({**record, "code": "code.py"}, indent=indent) + "\n"

    @classmethod
    def from_json(cls, record: dict[str, Any], folder: Path) -> RunInfo:
        """Make an info from the parsed ``run.json``. Ignore unknown keys. Raises ValueError if a value is invalid."""
        for key in ("id", "status", "started"):
            if key not in record:
                raise ValueError(f"run.json has no {key!r}")
        known = {name: record[name] for name in cls.__dataclass_fields__.keys() - _NOT_STORED if name in record}
        check_types(known, _KINDS, "run.json")
        known |= {name: tuple(known[name]) for name in ("workers", "notices", "warnings") if name in known}
        known["sync"] = {int(rank): checked_sync(one) for rank, one in record.get("sync", {}).items()}
        known["results"] = {int(rank): value for rank, value in record.get("results", {}).items()}
        known |= {"status": Status(record["status"]), "started": float(record["started"]), "folder": folder}
        return cls(**known)


_NOT_STORED = {"folder", "original_name", "tags", "notes"}
_KINDS = {
    "status": "status",
    "error": "text or null",
    "started": "time",
    "ended": "time or null",
    "size": "count of ranks",
    "workers": "texts",
    "config": "hyper-parameters",
    "overrides": "hyper-parameters",
    "options": "object",
    "sync": "object",
    "versions": "object",
    "data_sets": "object",
    "git": "object or null",
    "driver": "process",
    "results": "results",
    "notices": "texts",
    "warnings": "texts",
    "resumed_from": "text or null",
}
"""The types of the values in ``run.json``. Values that are not listed here are strings."""


class LogTail:
    """Keeps the last lines of a rank's output, as a terminal shows them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self._open = TerminalLines(most=OPEN_CHARACTERS)

    def add(self, text: str) -> None:
        """Append output from the rank."""
        self._lines.extend(map(_shown, self._open.add(text)[-LOG_LINES:]))

    def lines(self) -> list[str]:
        """Return the last lines, at most `LOG_LINES`. The last one may be incomplete."""
        return [*self._lines, *map(_shown, self._open.open)][-LOG_LINES:]


def _shown(line: str) -> str:
    return _ESCAPES.sub("", line)[:500]


@dataclass(slots=True)
class RankView:
    """The latest state of one rank."""

    rank: int
    worker: str = ""
    state: RankStatus = "running"
    usage: dict[str, Any] = field(default_factory=dict)
    progress: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last progress message of each loop, by the name of the loop."""
    log: LogTail = field(default_factory=LogTail)
    advice: str = ""
    """What the user can do if the rank runs out of memory. It is empty if the model should fit."""


def still_going(run_id: str, seconds: float | None) -> DeadlineError:
    """Return the error to raise if a run has not ended within ``seconds``."""
    return DeadlineError(f"run {run_id} has not ended within {seconds:g} s; it continues, and you can wait again")
