"""The copies of commits that ranks keep on their machine, and what those left there that were killed."""

from __future__ import annotations

import glob
import math
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

COPY = re.compile(r"farandole-\d{8}-\d{6}-[0-9a-f]+-(?P<worker>.*)-\d")
"""A rank's copy of a commit, see `farandole.ranks.keepsake`."""
GRACE_SECONDS = 3600.0
"""How old a copy must be before it is swept: a run that has lost all its ranks may be about to get new ones."""


def sweep_copies(folder: Path | None = None) -> None:
    """Remove copies of commits that no process still living here can have made: none of their cluster is so old."""
    old = {}
    for path, modified in _ours((folder or copies_folder()).glob("farandole-*")):
        named = COPY.fullmatch(path.name)
        if named and time.time() - modified > GRACE_SECONDS:
            old[path] = (_cluster(named["worker"]), modified)
    begun = _begun_clusters() if old else {}
    for path, (cluster, modified) in old.items():
        if begun.get(cluster, math.inf) > modified:
            path.unlink(missing_ok=True)


def remove_copies(runs: Iterable[str], folder: Path | None = None) -> None:
    """Remove what the ranks of this worker have copied of their commits in these runs."""
    worker = os.environ.get("FARANDOLE_WORKER", "")
    for run in runs:
        for path, _ in _ours((folder or copies_folder()).glob(glob.escape(f"farandole-{run}-{worker}-") + "*")):
            path.unlink(missing_ok=True)


def copies_folder() -> Path:
    """Return where ranks put their copies."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def _ours(paths: Iterable[Path]) -> Iterator[tuple[Path, float]]:
    """Yield those that belong to this user, and when they were modified; others may remove them meanwhile."""
    for path in paths:
        with suppress(FileNotFoundError):
            found = path.lstat()
            if found.st_uid == os.geteuid():
                yield path, found.st_mtime


def _begun_clusters() -> dict[str, float]:
    """Return since when there have been workers or ranks of clusters, of those that are processes of ours now."""
    begun: dict[str, float] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().effective == os.geteuid():
                cluster = _cluster(process.environ().get("FARANDOLE_WORKER", ""))
                begun[cluster] = min(process.create_time(), begun.get(cluster, math.inf))
    return begun


def _cluster(worker: str) -> str:
    return worker.rpartition("-w")[0]
