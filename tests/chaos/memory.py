"""A memory limit for one process, like a container's; needs root and the kernel's memory controller."""

from __future__ import annotations

import os
from pathlib import Path

from hub.process import wait_until

ROOT = Path("/sys/fs/cgroup")
FIRST = "memory"
"""The controller's folder if each controller has its own hierarchy (cgroup v1), and its name in v2."""
LIMITS = {
    "memory.limit_in_bytes": "{size}",
    "memory.memsw.limit_in_bytes": "{size}",
    "memory.max": "{size}",
    "memory.swap.max": "0",
}
"""The settings of both versions, in the order in which they must be written; a group has those of its version.

Source: Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""
NEEDED = ("memory.limit_in_bytes", "memory.max")
SIZE = 256 * 2**20
"""Bytes that the process may allocate beyond its current memory."""
GONE_SECONDS = 30.0


class MemoryLimit:
    """The limit of a process from `set` to `lift`: the kernel kills it when it allocates `SIZE` more bytes."""

    def __init__(self, name: str, *, root: Path = ROOT) -> None:
        hierarchy = root / FIRST
        # The group is at the top level, where the memory controller is available without delegation.
        self._group = (hierarchy if hierarchy.is_dir() else root) / name

    def set(self, pid: int) -> None:
        """Limit a process. Raises: ProcessLookupError if it does not exist; RuntimeError if no limit can be set."""
        self._group.mkdir(exist_ok=True)
        found = [name for name in LIMITS if (self._group / name).exists()]
        if not set(NEEDED).intersection(found):
            raise RuntimeError(f"{self._group} has no memory controller")
        for name in found:
            (self._group / name).write_text(LIMITS[name].format(size=SIZE))
        (self._group / "cgroup.procs").write_text(str(pid))

    def lift(self) -> None:
        """Remove the limit after the process has ended. Raises: TimeoutError if it stays alive."""
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
        """Return whether this user may set limits here."""
        trial = cls(f"farandole-chaos-{os.getpid()}-trial", root=root)
        try:
            trial._group.mkdir()
        except OSError:
            return False
        possible = any((trial._group / name).exists() for name in NEEDED)
        trial.lift()
        return possible
