"""The copies of commits that ranks keep on their machine, and what those left there that were killed."""

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
"""How old a copy must be before it is swept: a run that has lost all its ranks may be about to get new ones."""


def sweep_copies(folder: Path | None = None) -> None:
    """Remove old copies of commits of which no rank lives any more that has written them; it may commit rarely."""
    for path, modified in _ours((folder or copies_folder()).glob("farandole-*")):
        if COPY.fullmatch(path.name) and time.time() - modified > OLD_SECONDS:
            _remove_unless_in_use(path)


def remove_copies(runs: Iterable[str], folder: Path | None = None) -> None:
    """Remove what the ranks of this worker have copied of their commits in these runs."""
    worker = os.environ.get("FARANDOLE_WORKER", "")
    for run in runs:
        for path, _ in _ours((folder or copies_folder()).glob(glob.escape(copy_prefix(run, worker)) + "*")):
            path.unlink(missing_ok=True)


def _remove_unless_in_use(path: Path) -> None:
    with suppress(OSError), os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _ours(paths: Iterable[Path]) -> Iterator[tuple[Path, float]]:
    """Yield those that belong to this user, and when they were modified; others may remove them meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.lstat()
            if found.st_uid == os.geteuid():
                yield path, found.st_mtime
