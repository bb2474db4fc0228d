"""Creates temporary folders with the process id in their names, so that folders of killed processes can be removed."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import psutil


def make_tempdir(what: str, parent: Path | None = None) -> Path:
    """Create a folder that is deleted when this process ends, and delete the folders of processes that have ended."""
    parent = parent or Path(tempfile.gettempdir())
    for left in parent.glob(f"farandole-{what}-*"):
        if _is_abandoned(left, what):
            shutil.rmtree(left, ignore_errors=True)
    created = Path(tempfile.mkdtemp(prefix=f"farandole-{what}-{_pid_namespace():x}-{os.getpid()}-", dir=parent))
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    return created


def _is_abandoned(folder: Path, what: str) -> bool:
    named = re.fullmatch(rf"farandole-{what}-([0-9a-f]+)-(\d+)-.*", folder.name)
    # Containers may share the parent folder, but a process id is valid only in its own namespace.
    if named is None or int(named[1], 16) != _pid_namespace() or psutil.pid_exists(int(named[2])):
        return False
    with suppress(FileNotFoundError):
        return folder.lstat().st_uid == os.geteuid()
    return False


def _pid_namespace() -> int:
    namespace = Path("/proc/self/ns/pid")
    return namespace.stat().st_ino if namespace.exists() else 0
