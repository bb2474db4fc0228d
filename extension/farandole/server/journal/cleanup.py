"""Removes copies of commits that ranks have left behind in the shared memory of their machine."""

from __future__ import annotations

import fcntl
import glob
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from farandole.protocol import COPY, copies_folder, copy_prefix

OLD_SECONDS = 86_400.0
"""Age in seconds above which an unused copy is stale. Until that age, new ranks of an interrupted run may load it."""


def remove_stale_copies(folder: Path | None = None) -> None:
    """Remove this user's old copies, except for copies that live ranks have locked."""
    for path, modified in _own_files((folder or copies_folder()).glob("farandole-*")):
        if COPY.fullmatch(path.name) and time.time() - modified > OLD_SECONDS:
            _remove_unless_in_use(path)


def remove_copies(runs: Iterable[str], folder: Path | None = None) -> None:
    """Remove the copies that ranks on this worker have made during ``runs``."""
    worker = os.environ.get("FARANDOLE_WORKER", "")
    for run in runs:
        for path, _ in _own_files((folder or copies_folder()).glob(glob.escape(copy_prefix(run, worker)) + "*")):
            path.unlink(missing_ok=True)


def _remove_unless_in_use(path: Path) -> None:
    with suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _own_files(paths: Iterable[Path]) -> Iterator[tuple[Path, float]]:
    """Yield this user's files with their modification times, and skip files that another process has just removed."""
    for path in paths:
        with suppress(FileNotFoundError):
            stat = path.lstat()
            if stat.st_uid == os.geteuid():
                yield path, stat.st_mtime
