"""Measures the disk use of runs."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path

from farandole.protocol import CHECKPOINTS
from farandole.runs.model import RunInfo
from farandole.runs.positions import FOLDERS
from farandole.server.panel.table.background import Background

PARTS = ("", *FOLDERS, CHECKPOINTS, "records", "tensorboard")
"""The folders of a run. The main folder changes with every report, because the driver replaces ``view.json`` then."""


class DiskUse:
    """Measures the total size of the files of runs, and measures it again if a folder of a run has changed.

    Any thread may use this class.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], int]] = {}
        self._background = Background()

    def of(self, info: RunInfo) -> int | None:
        """Return the last known disk use of a run in bytes, or None. Outdated values are measured in the background."""
        known = self._known.get(info.id)
        if known is None or known[0] != _version(info.folder):
            self._background.add(info.id, partial(self.measured, info))
        return known[1] if known is not None else None

    def measured(self, info: RunInfo) -> int:
        """Return the disk use of a run in bytes, measured now if its folders have changed."""
        version = _version(info.folder)
        known = self._known.get(info.id)
        if known is None or known[0] != version:
            known = self._known[info.id] = version, _size(info.folder)
        return known[1]

    def forget(self, run: str) -> None:
        """Drop the disk use of a deleted run."""
        self._known.pop(run, None)


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(_changed(folder / part) for part in PARTS)


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_mtime_ns
    return 0


def _size(folder: Path) -> int:
    """Return the total size of the files below a folder. Links are not followed and have no size."""
    if folder.is_symlink():
        return 0
    return sum(_file_size(Path(place, name)) for place, _, names in os.walk(folder) for name in names)


def _file_size(path: Path) -> int:
    # A file may be removed at any time, for example an old checkpoint.
    with suppress(OSError):
        return path.lstat().st_size
    return 0
