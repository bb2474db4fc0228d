"""Finds the checkpoints of runs on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.protocol import CHECKPOINT_MANIFEST, CHECKPOINT_PREFIX, CHECKPOINTS


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint on disk; ``time`` is when it was written, in seconds since the epoch."""

    step: int
    path: Path
    time: float
    bytes: int


def checkpoints_of(folder: Path) -> tuple[Checkpoint, ...]:
    """Return the checkpoints in a run's folder that have readable manifests, oldest first.

    A writer renames the old checkpoint of a step to ``.old`` before it puts the new one in its place. If the writer
    was killed in between, the renamed one counts.
    """
    places = folder / CHECKPOINTS
    found = {one.step: one for place in places.glob(f".{CHECKPOINT_PREFIX}*.old") if (one := _read(place)) is not None}
    found |= {one.step: one for place in places.glob(f"{CHECKPOINT_PREFIX}*") if (one := _read(place)) is not None}
    return tuple(sorted(found.values(), key=lambda checkpoint: (checkpoint.time, checkpoint.step)))


def _read(place: Path) -> Checkpoint | None:
    try:
        manifest: dict[str, Any] = json.loads((place / CHECKPOINT_MANIFEST).read_text(encoding="utf-8"))
        return Checkpoint(
            step=int(manifest["step"]), path=place, time=float(manifest["time"]), bytes=int(manifest["bytes"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
