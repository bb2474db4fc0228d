"""Remove what the containers of killed daemons leave behind: processes, mounts and control groups."""

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
    """The remains of a killed engine in the control groups ``name`` and in ``folder``.

    ``containerd`` is the socket of the engine's containerd.
    """

    name: str
    folder: Path
    containerd: Path

    def end_containers(self) -> None:
        """Kill the containers that have outlived their daemons, and the shims that supervise them."""

        def over() -> bool:
            found = {*self._grouped(), *self._shims()}
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not found

        wait_for(over, f"Killing the containers of {self.name}", STOP_SECONDS)

    def unmount(self) -> None:
        """Unmount everything below the folder, starting with the newest mount."""
        points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in reversed([point for point in points if point.startswith(f"{self.folder}/")]):
            run("umount", point)

    def remove_groups(self) -> None:
        """Remove the control groups. Raises `SetUpError` if they stay busy."""
        wait_for(self._groups_gone, f"Removing the control groups {self.name}", STOP_SECONDS)

    def _groups(self) -> list[Path]:
        """Return the control groups. Inner groups come before the groups that contain them."""
        roots = [*CGROUPS.glob(self.name), *CGROUPS.glob(f"*/{self.name}")]
        return [folder for root in roots for folder in sorted(root.glob("**/"), reverse=True)]

    def _grouped(self) -> Iterator[int]:
        """Yield the ids of the processes in the control groups."""
        for group in self._groups():
            with suppress(FileNotFoundError):
                # Skip the id 0, which stands for a process in another PID namespace. With this id, `os.kill` would kill
                # the caller's process group.
                yield from (pid for word in (group / "cgroup.procs").read_text().split() if (pid := int(word)))

    def _shims(self) -> Iterator[int]:
        """Yield the ids of containerd's shims, which share no control group but name the socket in their commands."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                program, *words = (process / "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" in program and str(self.containerd).encode() in words:
                    yield int(process.name)

    def _groups_gone(self) -> bool:
        """Try to remove the groups and return whether all are gone.

        A group stays busy briefly after its last process ends.
        """
        for group in self._groups():
            try:
                group.rmdir()
            except OSError as exc:
                if exc.errno not in {errno.EBUSY, errno.ENOENT}:
                    raise
                return False
        return True
