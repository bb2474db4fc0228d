"""The checkpoints of runs, as the driver finds them on disk: to list, and to choose what a new run goes on from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farandole.exceptions import UsageError
from farandole.protocol import CHECKPOINT_MANIFEST, CHECKPOINT_PREFIX, CHECKPOINTS

if TYPE_CHECKING:
    from farandole.runs.run import RunInfo
    from farandole.runs.store import RunStore


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint on disk: its step, folder, when it was written (seconds since the epoch) and its size."""

    step: int
    path: Path
    time: float
    bytes: int


def checkpoints_of(folder: Path) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a run's folder, oldest first; what has no readable manifest is none.

    One that a killed writer had put aside, and not replaced, counts as well.
    """
    places = folder / CHECKPOINTS
    found = {one.step: one for place in places.glob(f".{CHECKPOINT_PREFIX}*.old") if (one := _read(place)) is not None}
    found |= {one.step: one for place in places.glob(f"{CHECKPOINT_PREFIX}*") if (one := _read(place)) is not None}
    return tuple(sorted(found.values(), key=lambda checkpoint: (checkpoint.time, checkpoint.step)))


def to_resume(store: RunStore, key: str, *, name: str | None = None, cwd: Path | None = None) -> RunInfo:
    """Return the run to go on from: that of ``key``, an id, the beginning of one, or a name.

    With an empty key the newest run that has a checkpoint: of the same name where one is given, else of the same
    folder.

    Raises: UsageError when it has no checkpoint. RunNotFoundError when there is no such run.
    """
    if key:
        return _with_checkpoint(store, key)
    here = str(cwd or Path.cwd())
    for info in store.list():
        if (info.name == name if name else info.cwd == here) and checkpoints_of(info.folder):
            return info
    whose = f"with the name {name!r}" if name else f"from {here}"
    raise UsageError(
        f"no run {whose} has a checkpoint; call fd.checkpoint(state) in the cell, or name a run: --resume ID (%runs)."
    )


def _with_checkpoint(store: RunStore, key: str) -> RunInfo:
    """Return the newest run of ``key`` that has a checkpoint: several may share a name."""
    info = store.find(key)
    same_name = [other for other in store.list() if other.name == key]
    for candidate in [info, *same_name]:
        if checkpoints_of(candidate.folder):
            return candidate
    raise UsageError(
        f"run {info.id} has no checkpoint to go on from; call fd.checkpoint(state) in its cell, or name another run."
    )


def _read(place: Path) -> Checkpoint | None:
    try:
        manifest: dict[str, Any] = json.loads((place / CHECKPOINT_MANIFEST).read_text(encoding="utf-8"))
        return Checkpoint(
            step=int(manifest["step"]), path=place, time=float(manifest["time"]), bytes=int(manifest["bytes"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
