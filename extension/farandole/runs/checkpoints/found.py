"""Finds the checkpoints of runs on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from farandole.exceptions import UsageError
from farandole.protocol import CHECKPOINT_MANIFEST, CHECKPOINT_PREFIX, CHECKPOINTS, LATEST, is_number
from farandole.reading import SMALL_JSON_BYTES, read_json


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint on disk. ``time`` is when the checkpoint was written, in seconds since the epoch."""

    step: int
    path: Path
    time: float
    bytes: int


def checkpoints_of(folder: Path) -> tuple[Checkpoint, ...]:
    """Return all checkpoints in a run's folder that have readable manifests, oldest first.

    To replace the checkpoint of a step, a writer renames the old checkpoint to ``.step-<n>.old`` before it renames the
    new one. If the writer was killed in between, the old checkpoint is returned.
    """
    places = folder / CHECKPOINTS
    found = {one.step: one for place in places.glob(f".{CHECKPOINT_PREFIX}*.old") if (one := _read(place)) is not None}
    found |= {one.step: one for place in places.glob(f"{CHECKPOINT_PREFIX}*") if (one := _read(place)) is not None}
    return tuple(sorted(found.values(), key=lambda checkpoint: (checkpoint.time, checkpoint.step)))


def newest_first(checkpoints: Sequence[Checkpoint], run_id: str, step: int | None = None) -> list[Checkpoint]:
    """Return a run's checkpoints, newest first, or only the one of a step.

    Raises UsageError if there is none.
    """
    if not checkpoints:
        raise UsageError(
            f"run {run_id} has no checkpoint in its folder; call fd.checkpoint(state) in the cell, before its loop."
        )
    found = [one for one in checkpoints if step in {None, one.step}]
    if not found:
        steps = ", ".join(str(one.step) for one in checkpoints)
        raise UsageError(f"run {run_id} has no checkpoint of step {step}; it has those of the steps {steps}.")
    return found[::-1]


def _read(place: Path) -> Checkpoint | None:
    try:
        manifest = read_json(place, CHECKPOINT_MANIFEST, SMALL_JSON_BYTES)
        step, time, size = manifest["step"], manifest["time"], manifest["bytes"]
    except (OSError, ValueError, KeyError):
        return None
    valid = type(step) is int and type(size) is int and is_number(time) and 0 <= time < LATEST
    return Checkpoint(step=step, path=place, time=float(time), bytes=size) if valid else None
