"""Message types and constants that the driver, the ranks and the browser share.

A rank sends *rank messages* to its driver. These are JSON objects with a ``kind``, and are sent in batches through a
Jupyter comm with the target ``farandole``. Rank messages and the output of the cell arrive in the order of sending.

This module imports only the standard library.
"""

from __future__ import annotations

import math
import platform
import re
import reprlib
import sys
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeGuard

COMM_TARGET = "farandole"
"""The comm target for batches of rank messages: ``{"run": id or "", "rank": n, "records": [rank message, ...]}``."""

PUSH_TARGET = "farandole.push"
"""The comm target for pickled values that a driver sends to a rank. Each message contains one chunk of the pickle as
its buffer, and ``{"key": str}`` as its data, with the same key for all chunks."""

AREA_TYPE = "application/vnd.farandole.area"
"""The MIME type of an ``update_display_data`` message that names the area for the next output of a rank. The value is
the id of an output widget, or an empty string for the output of the cell."""

CODE_NAME = b"CodeType"
"""A name that occurs in each pickle that cloudpickle has made of a function or a class with its code."""


def foreign_code(data: bytes, python: str) -> str:
    """Return a message if a pickle from this Python version contains code that the running Python cannot execute.

    Code differs between minor versions, and executing code of another version crashes the process. Otherwise, return an
    empty string.
    """
    own = platform.python_version()
    if python.split(".")[:2] == own.split(".")[:2] or CODE_NAME not in data:
        return ""
    return f"functions and classes of Python {python} do not run on Python {own}"


CHECKPOINTS = "checkpoints"
"""The name of the folder with the checkpoints, within the folder of a run."""

CHECKPOINT_PREFIX = "step-"
"""The prefix of the names of checkpoint folders, which is followed by the step."""

CHECKPOINT_MANIFEST = "manifest.json"
"""The file in a checkpoint that contains ``step``, ``time`` (seconds since the epoch), ``bytes`` and the checksums of
the checkpoint's files."""

GROUP_FOLDERS = "/groups"
"""The folder, on servers of a hub, that contains the shared folder of each group. It must be equal to
`spawner_config.shares.GROUPS_PLACE`."""


RUN_MARK = "farandole_run"
"""The metadata key of requests that belong to a run. The value is ``{"run": id, "part": Part, "rank": n}``, and in the
first request also contains ``"about"``, a description that lets another driver restore the run. The worker writes all
replies to such requests to its journal, from which another driver can read them later."""

CELL_PLACE = "farandole_cell"
"""The metadata key for the place of a cell's code in the notebook: ``{"number": n, "lines_above": n}``. A rank uses it
for its tracebacks."""

NO_OUTPUT = "farandole_no_output"
"""The metadata key of replies to requests during which a rank's kernel published nothing. The worker forwards such a
reply without waiting for output."""

WORLD_LEFT = "farandole_world_left"
"""The key among the values of a reply's expressions that says that the rank is no longer in its world."""

RECORD_NUMBER = "farandole_record"
"""The metadata key for the number of a message in the rank's journal of the run. The first number is 1."""

RECORD_RUN = "farandole_record_run"
"""The metadata key for the run of a message in a journal. Drivers need it because the last messages of a run may arrive
after the next run has begun."""

RECORD_SIGN_SECONDS = 10.0
"""The interval, in seconds, between the keep-alives that a worker sends to the readers of a journal while there are no
new messages."""

LEFT_RECORDS = "records"
"""The folder of a run in which workers save their journals if no driver has read the end of the run.

For each kernel there are two files: ``<id>.frames`` contains the websocket frames, each preceded by its length, and
``<id>.json`` is written last.
"""

DELETED_RUNS = ".deleted"
"""The folder of a run store with an empty file for each run that the user has deleted, named by the run's id."""


MOST_RANKS = 16_384
"""The maximum number of ranks in a run. Readers of run folders reject larger numbers as invalid."""

LARGEST_STEP = 2**63 - 1
"""The largest step or epoch that a report can contain."""

LATEST = 1e11
"""The upper limit for times in seconds since the epoch, which is in the year 5138."""

COPY = re.compile(r"farandole-\d{8}-\d{6}-[0-9a-f]+-.*-\d")
"""Matches the names of the files in `copies_folder` in which ranks keep copies of their commits.

The process of the rank that wrote a copy holds a shared lock (flock) on the file while the process is running.
"""


def copies_folder() -> Path:
    """Return the folder in which ranks keep copies of their commits."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def copy_prefix(run: str, worker: str | None = None) -> str:
    """Return the prefix of the names of a run's copies, for one worker or for all workers."""
    return f"farandole-{run}-" + (f"{worker}-" if worker is not None else "")


class Part(StrEnum):
    """Identifies the request of a run that a message belongs to: the setup, the user's cell or the cleanup."""

    BEGIN = "begin"
    CELL = "cell"
    END = "end"


class Kind(StrEnum):
    """The kind of a rank message."""

    REPORT = "report"
    PROGRESS = "progress"
    USAGE = "usage"
    RESULT = "result"
    CONFIG = "config"
    """Contains hyper-parameters as ``values``. Those of rank 0 are the ones of the run."""
    VALUE = "value"
    MEMBER = "member"
    """Reports that a rank of an elastic run is waiting for a world or has joined one."""
    NOTICE = "notice"
    """Contains a sentence for the user as ``text``. If ``warning`` is true, it reports a loss, a hang or a failure."""
    SYNC = "sync"
    """Contains what a mode of `fd.sync` costs the rank."""
    FIT = "fit"
    """Says in ``text`` why the rank may run out of memory, and on which mesh the model fits. Replaces earlier ones."""


class Notify(Protocol):
    """A callback that shows the user a one-sentence notice. A ``warning`` reports a loss, a hang or a failure."""

    def __call__(self, text: str, *, warning: bool = False) -> None:
        """Show the notice."""


COLLECTIVE_ERRORS = frozenset({"HorovodInternalError", "DistBackendError"})
COLLECTIVE_WORDS = (
    "gloo/transport",
    "Gloo",
    "NCCL error",
    "Connection closed by peer",
    "Horovod has not been initialized",
    "Horovod has been shut down",
    # Horovod's shutdown drops pending collectives, and any thread that is waiting for one gets this message.
    "was not created or has been cleared",
    "process group has not been initialized",
)


def is_collective_failure(name: str, message: str) -> bool:
    """Return whether an error's class name and message indicate that a peer left during a collective."""
    return name in COLLECTIVE_ERRORS or any(word in message for word in COLLECTIVE_WORDS)


RESTART_EXIT_CODE = 75
"""The exit code of a rank of an elastic run that cannot continue without a lost rank, because both share a model."""

RESTARTED = "ended, to begin again together with the ranks that share its model"
"""The cause of death of a rank that exits with `RESTART_EXIT_CODE`."""


class Status(StrEnum):
    """The status of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        """True if the run has ended."""
        return self is not Status.RUNNING


@dataclass(frozen=True, kw_only=True)
class Report:
    """One record of metrics from one rank.

    - ``time`` is in seconds since the epoch, according to the rank's clock.
    - ``step`` and ``epoch`` are integers or None.
    - ``values`` maps the names of series to floats, which can be NaN or infinite.
    """

    rank: int
    time: float
    step: int | None = None
    epoch: int | None = None
    values: dict[str, float] = field(default_factory=dict)


def is_rank(value: object) -> TypeGuard[int]:
    """Return whether an untrusted value is a valid rank number."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_RANKS


def is_number(value: object) -> TypeGuard[float]:
    """Return whether an untrusted value is a finite number that fits into a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_usage(record: dict[str, Any]) -> None:
    """Raise ValueError unless all sizes and percentages in a usage record are numbers or None."""
    for key, value in record.items():
        if key.endswith(("_bytes", "_percent")) and value is not None and not is_number(value):
            raise ValueError(f"{key} of a usage record must be a number, not {reprlib.repr(value)}")


def checked_sync(record: Any) -> dict[str, Any]:
    """Return the figures in a record of a mode of `fd.sync`. Only the time spent waiting may be None.

    Raises ValueError if a value has another type.
    """
    if not isinstance(record, dict):
        raise ValueError(f"a record of a sync mode must be an object, not {reprlib.repr(record)}")
    figures = {name: record.get(name) for name in ("mode", "waiting", "bytes_per_step", "staleness")}
    known = {name: value for name, value in figures.items() if (name, value) != ("waiting", None)}
    mode, *numbers = known.values()
    if not isinstance(mode, str) or not all(map(is_number, numbers)):
        raise ValueError(f"a record of a sync mode must have a text and three numbers, not {reprlib.repr(figures)}")
    return figures


def float_to_json(value: float) -> float | str:
    """Return a float as a strict JSON value. NaN and infinities become ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def report_to_json(report: Report) -> dict[str, Any]:
    """Return a report as a JSON object without the fields that are None."""
    record: dict[str, Any] = {"kind": Kind.REPORT, "rank": report.rank, "time": report.time}
    if report.step is not None:
        record["step"] = report.step
    if report.epoch is not None:
        record["epoch"] = report.epoch
    record["values"] = {name: float_to_json(value) for name, value in report.values.items()}
    return record


def report_from_json(record: dict[str, Any]) -> Report:
    """Convert a JSON object to a report, as the inverse of `report_to_json`.

    Raises KeyError, AttributeError, TypeError, ValueError or OverflowError if the object is not a report.
    """
    steps = record.get("step"), record.get("epoch")
    whole = all(step is None or (type(step) is int and abs(step) <= LARGEST_STEP) for step in steps)
    if not whole or not is_rank(record["rank"]) or not is_number(record["time"]):
        raise ValueError(f"this is not a report: {reprlib.repr(record)}")
    values = {name: float(value) for name, value in record["values"].items()}
    return Report(rank=record["rank"], time=float(record["time"]), step=steps[0], epoch=steps[1], values=values)
