"""A limit for the memory of a single process, as a container has one; needs root and the kernel's memory controller."""

from __future__ import annotations

import os
from pathlib import Path

from hub.process import wait_until

ROOT = Path("/sys/fs/cgroup")
FIRST = "memory"
"""The controller's folder where each controller has a hierarchy of its own (cgroup v1), and its name in v2."""
LIMITS = {
    "memory.limit_in_bytes": "{size}",
    "memory.memsw.limit_in_bytes": "{size}",
    "memory.max": "{size}",
    "memory.swap.max": "0",
}
"""Of both versions, in the order in which they must be set; a group has those of its version.

Source: Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""
NEEDED = ("memory.limit_in_bytes", "memory.max")
SIZE = 256 * 2**20
"""Bytes that the process may take beyond what it has."""
GONE_SECONDS = 30.0


class MemoryLimit:
    """What holds for a process from `set` until `lift`: the kernel kills it where it takes `SIZE` bytes more."""

    def __init__(self, name: str, *, root: Path = ROOT) -> None:
        hierarchy = root / FIRST
        # At the top, where groups beside each other have the controller without being given it.
        self._group = (hierarchy if hierarchy.is_dir() else root) / name

    def set(self, pid: int) -> None:
        """Limit a process. Raises: ProcessLookupError where there is none; RuntimeError where no limit can be set."""
        self._group.mkdir(exist_ok=True)
        found = [name for name in LIMITS if (self._group / name).exists()]
        if not set(NEEDED).intersection(found):
            raise RuntimeError(f"{self._group} has no memory controller")
        for name in found:
            (self._group / name).write_text(LIMITS[name].format(size=SIZE))
        (self._group / "cgroup.procs").write_text(str(pid))

    def lift(self) -> None:
        """Take the limit away, once its process has gone. Raises: TimeoutError where that lives on."""
        wait_until(self._lifted, GONE_SECONDS)

    def _lifted(self) -> bool:
        try:
            self._group.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    @classmethod
    def possible(cls, *, root: Path = ROOT) -> bool:
        """Whether this user may set limits here."""
        trial = cls(f"farandole-chaos-{os.getpid()}-trial", root=root)
        try:
            trial._group.mkdir()
        except OSError:
            return False
        possible = any((trial._group / name).exists() for name in NEEDED)
        trial.lift()
        return possible
