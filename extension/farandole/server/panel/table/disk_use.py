"""Measures the disk use of runs."""

from __future__ import annotations

import os
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path

from farandole.protocol import CHECKPOINTS
from farandole.reading import versions_of
from farandole.runs.model import RunInfo
from farandole.runs.positions import FOLDERS
from farandole.server.panel.table.cache import Cache

PARTS = ("", *FOLDERS, CHECKPOINTS, "records", "tensorboard")
"""The folders of a run. The main folder changes with every report, because the driver replaces ``view.json`` then."""


class DiskUse(Cache[int]):
    """The total size of the files of each run, measured again if a folder of the run has changed."""

    def __init__(self) -> None:
        super().__init__(_version, lambda info: _size(info.folder))


def _version(info: RunInfo) -> Hashable:
    return versions_of(info.folder / part for part in PARTS)


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
