"""Message types and constants that the driver, the ranks and the browser share.

A rank sends *rank messages* to its driver. These are JSON objects with a ``kind``, sent in batches through one Jupyter
comm with the target ``farandole``. They arrive in order with the output of the cell.

This module imports only the standard library.
"""

from __future__ import annotations

import math
import re
import reprlib
import sys
import tempfile
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeGuard

COMM_TARGET = "farandole"
"""Comm target on which a rank sends ``{"run": id or "", "rank": n, "records": [rank message, ...]}``."""

PUSH_TARGET = "farandole.push"
"""Comm target on which a driver sends a pickled value to a rank: the data is ``{"key": str}``, the value one buffer."""

CHECKPOINTS = "checkpoints"
"""Name of the folder, within the folder of a run, that holds the checkpoints."""

CHECKPOINT_PREFIX = "step-"
"""Prefix of the names of checkpoint folders. The step follows the prefix."""

CHECKPOINT_MANIFEST = "manifest.json"
"""File in a checkpoint with ``step``, ``time`` (seconds since the epoch), ``bytes`` and the checksums of the files."""

GROUP_FOLDERS = "/groups"
"""Path, in servers of a hub, of the folders to which the members of a group can write.

It equals `spawner_config.shares.GROUPS_PLACE`.
"""


RUN_MARK = "farandole_run"
"""Key in the metadata of a request that belongs to a run: ``{"run": id, "part": Part, "rank": n}``. The first request
also has ``"about"``, from which another driver can restore the run. The worker writes all replies to such a request to
its journal, the record of messages that another driver can read later."""

RECORD_NUMBER = "farandole_record"
"""Key in the metadata of a message in a journal: the message's number in this rank's journal of the run, from 1."""

RECORD_RUN = "farandole_record_run"
"""Key in the same metadata: the id of the run.

A driver needs the id because the last messages of a run may arrive after the next run has begun.
"""

RECORD_SIGN_SECONDS = 10.0
"""Interval between the heartbeats that a worker sends to the readers of a journal without new messages."""

LEFT_RECORDS = "records"
"""Folder of a run in which workers save their journals if no driver has read the end of the run.

For each kernel there are two files: ``<id>.frames`` has the websocket frames, each one preceded by its length, and
``<id>.json`` is written last.
"""


MOST_RANKS = 16_384
"""Maximum number of ranks in a run. Readers of run folders reject larger numbers as invalid."""

LARGEST_STEP = 2**63 - 1
"""Largest step or epoch that a report can have."""

LATEST = 1e11
"""Upper limit for times, in seconds since the epoch: the year 5138."""

COPY = re.compile(r"farandole-\d{8}-\d{6}-[0-9a-f]+-.*-\d")
"""Pattern for the file names of the copies of commits that ranks keep in `copies_folder`.

The rank that wrote a copy holds a shared lock (flock) on the file as long as the rank's process runs.
"""


def copies_folder() -> Path:
    """Return the folder in which ranks keep copies of their commits."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def copy_prefix(run: str, worker: str | None = None) -> str:
    """Return the prefix of the file names of a run's copies, from one worker or from all workers."""
    return f"farandole-{run}-" + (f"{worker}-" if worker is not None else "")


class Part(StrEnum):
    """The request of a run that a message belongs to: the set-up, the user's cell or the clean-up."""

    BEGIN = "begin"
    CELL = "cell"
    END = "end"


class Kind(StrEnum):
    """The kind of a rank message."""

    REPORT = "report"
    PROGRESS = "progress"
    USAGE = "usage"
    RESULT = "result"
    VALUE = "value"
    MEMBER = "member"
    """A rank of an elastic run is waiting for a world or has joined one."""
    NOTICE = "notice"


COLLECTIVE_ERRORS = frozenset({"HorovodInternalError", "DistBackendError"})
COLLECTIVE_WORDS = (
    "gloo/transport",
    "Gloo",
    "NCCL error",
    "Connection closed by peer",
    "Horovod has not been initialized",
    "Horovod has been shut down",
    # Horovod's shutdown drops pending collectives. A thread that waits for one gets this message about its handle.
    "was not created or has been cleared",
    "process group has not been initialized",
)


def is_collective_failure(name: str, message: str) -> bool:
    """Return whether the class name and message of an error show that a peer left during a collective."""
    return name in COLLECTIVE_ERRORS or any(word in message for word in COLLECTIVE_WORDS)


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
    """One metrics record of one rank.

    ``time`` is seconds since the epoch on the rank's clock; ``values`` maps the name of a series to a float, which
    can be NaN or infinite. ``step`` and ``epoch`` are integers or None.
    """

    rank: int
    time: float
    step: int | None = None
    epoch: int | None = None
    values: dict[str, float] = field(default_factory=dict)


def is_rank(value: object) -> TypeGuard[int]:
    """Return whether an untrusted value is the number of a rank."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_RANKS


def is_number(value: object) -> TypeGuard[float]:
    """Return whether an untrusted value is a finite number that fits into a float."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def check_usage(record: dict[str, Any]) -> None:
    """Raise ValueError unless the values of a usage record are numbers or None."""
    for key, value in record.items():
        if key.endswith(("_bytes", "_percent")) and value is not None and not is_number(value):
            raise ValueError(f"{key} of a usage record must be a number, not {reprlib.repr(value)}")


def float_to_json(value: float) -> float | str:
    """Return a float as strict JSON: NaN and infinities become the strings ``NaN``, ``Infinity``, ``-Infinity``."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def report_to_json(report: Report) -> dict[str, Any]:
    """Return a report as a JSON object. Fields that are None are left out."""
    record: dict[str, Any] = {"kind": Kind.REPORT, "rank": report.rank, "time": report.time}
    if report.step is not None:
        record["step"] = report.step
    if report.epoch is not None:
        record["epoch"] = report.epoch
    record["values"] = {name: float_to_json(value) for name, value in report.values.items()}
    return record


def report_from_json(record: dict[str, Any]) -> Report:
    """Return the report that a JSON object contains. This is the inverse of `report_to_json`.

    Raises KeyError, AttributeError, TypeError, ValueError or OverflowError if the object is not a report.
    """
    steps = record.get("step"), record.get("epoch")
    whole = all(step is None or (type(step) is int and abs(step) <= LARGEST_STEP) for step in steps)
    if not whole or not is_rank(record["rank"]) or not is_number(record["time"]):
        raise ValueError(f"this is not a report: {reprlib.repr(record)}")
    values = {name: float(value) for name, value in record["values"].items()}
    return Report(rank=record["rank"], time=float(record["time"]), step=steps[0], epoch=steps[1], values=values)
