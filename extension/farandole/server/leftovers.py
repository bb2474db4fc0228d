"""What servers and ranks keep on their machine, and what those left there that were killed."""

from __future__ import annotations

import atexit
import glob
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

RECORDS = re.compile(r"farandole-record-(?P<space>\d+)-(?P<pid>\d+)-.*")
COPY = re.compile(r"farandole-\d{8}-\d{6}-[0-9a-f]+-(?P<worker>.*)-\d")
"""A rank's copy of a commit, see `farandole.ranks.keepsake`."""
GRACE_SECONDS = 600.0
"""How old a copy must be before it is swept: a run that has lost all its ranks may be about to get new ones."""


def record_folder(parent: Path | None = None) -> Path:
    """Return a new folder for this process's records, which goes when it ends; those of killed ones go now."""
    parent = parent or Path(tempfile.gettempdir())
    for folder in _ours(parent.glob("farandole-record-*")):
        named = RECORDS.fullmatch(folder.name)
        # Containers may share the folder and not their process ids.
        if named and int(named["space"]) == _pid_space() and not psutil.pid_exists(int(named["pid"])):
            shutil.rmtree(folder, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"farandole-record-{_pid_space()}-{os.getpid()}-", dir=parent))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def sweep_copies(folder: Path | None = None) -> None:
    """Remove the copies of commits of clusters none of whose processes live here any more."""
    old = [
        path
        for path in _ours((folder or copies_folder()).glob("farandole-*"))
        if COPY.fullmatch(path.name) and time.time() - path.lstat().st_mtime > GRACE_SECONDS
    ]
    living = _living_clusters() if old else set()
    for path in old:
        named = COPY.fullmatch(path.name)
        if named and _cluster(named["worker"]) not in living:
            path.unlink(missing_ok=True)


def remove_copies(runs: Iterable[str], folder: Path | None = None) -> None:
    """Remove what the ranks of this worker have copied of their commits in these runs."""
    worker = os.environ.get("FARANDOLE_WORKER", "")
    for run in runs:
        for path in _ours((folder or copies_folder()).glob(glob.escape(f"farandole-{run}-{worker}-") + "*")):
            path.unlink(missing_ok=True)


def copies_folder() -> Path:
    """Return where ranks put their copies."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def _ours(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        with suppress(FileNotFoundError):
            if path.lstat().st_uid == os.geteuid():
                yield path


def _pid_space() -> int:
    space = Path("/proc/self/ns/pid")
    return space.stat().st_ino if space.exists() else 0


def _living_clusters() -> set[str]:
    """Return the clusters whose workers or ranks are processes of ours on this machine."""
    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().effective == os.geteuid():
                found.add(_cluster(process.environ().get("FARANDOLE_WORKER", "")))
    return found


def _cluster(worker: str) -> str:
    return worker.rpartition("-w")[0]
