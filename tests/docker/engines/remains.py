"""Cleans up what the containers of killed daemons leave behind: processes, mounts and control groups."""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docker.engines.daemon import STOP_SECONDS, wait_for
from tests.docker.engines.debian import run

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, kw_only=True)
class Remains:
    """The remains in the control groups ``name`` and in ``folder``; ``containerd`` is the socket of their daemon."""

    name: str
    folder: Path
    containerd: Path

    def end_containers(self) -> None:
        """Kill the containers of dead daemons, and the shims above them."""

        def over() -> bool:
            found = {*self._grouped(), *self._shims()}
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found

        wait_for(over, f"The end of the containers of {self.name}", STOP_SECONDS)

    def unmount(self) -> None:
        """Unmount the mounts in the folder, the newest first."""
        points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in reversed([point for point in points if point.startswith(f"{self.folder}/")]):
            run("umount", point)

    def remove_groups(self) -> None:
        """Remove the control groups."""
        wait_for(self._groups_gone, f"The end of the control groups {self.name}", STOP_SECONDS)

    def _groups(self) -> list[Path]:
        """Return the control groups, inner ones first."""
        roots = [*CGROUPS.glob(self.name), *CGROUPS.glob(f"*/{self.name}")]
        return [folder for root in roots for folder in sorted(root.glob("**/"), reverse=True)]

    def _grouped(self) -> Iterator[int]:
        """Yield the processes in the control groups."""
        for group in self._groups():
            with suppress(FileNotFoundError):
                # A process that is invisible from here has the id 0, which `os.kill` would apply to the caller's
                # process group.
                yield from (pid for word in (group / "cgroup.procs").read_text().split() if (pid := int(word)))

    def _shims(self) -> Iterator[int]:
        """Yield containerd's shims: they have no common group, but their command lines name the socket."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                program, *words = (process / "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" in program and str(self.containerd).encode() in words:
                    yield int(process.name)

    def _groups_gone(self) -> bool:
        """Return whether they are removed; a group stays busy just after its last process ends."""
        for group in self._groups():
            try:
                group.rmdir()
            except OSError as exc:
                if exc.errno not in {errno.EBUSY, errno.ENOENT}:
                    raise
                return False
        return True
