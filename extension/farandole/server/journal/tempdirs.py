"""Temporary folders that name their process, so that what a killed one left is known for what it is."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil


def own_folder(what: str, parent: Path | None = None) -> Path:
    """Return a new folder for ``what``, which goes when this process ends; those of processes that are gone go now."""
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f"farandole-{what}-*"):
        if _is_left(left, what):
            shutil.rmtree(left, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f"farandole-{what}-{_pid_space():x}-{os.getpid()}-", dir=parent))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _is_left(folder: Path, what: str) -> bool:
    named = re.fullmatch(rf"farandole-{what}-([0-9a-f]+)-(\d+)-.*", folder.name)
    # Containers may share the folder and not their process ids, users the folder and not what is in it.
    if named is None or int(named[1], 16) != _pid_space() or psutil.pid_exists(int(named[2])):
        return False
    with suppress(FileNotFoundError):
        return folder.lstat().st_uid == os.geteuid()
    return False


def _pid_space() -> int:
    space = Path("/proc/self/ns/pid")
    return space.stat().st_ino if space.exists() else 0
