"""A memory limit for one process, like that of a container. It needs root and the kernel's memory controller."""

from __future__ import annotations

import os
from pathlib import Path

from hub.process import wait_until

ROOT = Path("/sys/fs/cgroup")
FIRST = "memory"
"""The folder of the memory controller's hierarchy in cgroup v1."""
LIMITS = {
    "memory.limit_in_bytes": "{size}",
    "memory.memsw.limit_in_bytes": "{size}",
    "memory.max": "{size}",
    "memory.swap.max": "0",
}
"""The settings of cgroup v1 and v2, in the order in which they must be written.

A group has only the settings of one version.

Source: Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""
NEEDED = ("memory.limit_in_bytes", "memory.max")
SIZE = 256 * 2**20
"""The bytes that the process may allocate in addition to its current memory."""
GONE_SECONDS = 30.0


class MemoryLimit:
    """Limits the memory of a process from `set` until `lift`. The kernel kills the process if it exceeds the limit."""

    def __init__(self, name: str, *, root: Path = ROOT) -> None:
        hierarchy = root / FIRST
        # Create the group at the top level, because the memory controller is available there without delegation.
        self._group = (hierarchy if hierarchy.is_dir() else root) / name

    def set(self, pid: int) -> None:
        """Limit the memory of a process.

        Raises ProcessLookupError if the process does not exist, and RuntimeError if no limit can be set.
        """
        self._group.mkdir(exist_ok=True)
        found = [name for name in LIMITS if (self._group / name).exists()]
        if not set(NEEDED).intersection(found):
            raise RuntimeError(f"{self._group} has no memory controller")
        for name in found:
            (self._group / name).write_text(LIMITS[name].format(size=SIZE))
        (self._group / "cgroup.procs").write_text(str(pid))

    def lift(self) -> None:
        """Remove the limit once the process has ended. Raises TimeoutError if the process does not end."""
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
        """Return whether this user can set memory limits on this machine."""
        trial = cls(f"farandole-chaos-{os.getpid()}-trial", root=root)
        try:
            trial._group.mkdir()
        except OSError:
            return False
        possible = any((trial._group / name).exists() for name in NEEDED)
        trial.lift()
        return possible
