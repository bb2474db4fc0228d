"""Finds what a run on a local hub leaves behind: processes, commits in shared memory, and temporary folders."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from hub.process import command_of, processes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = ("farandole.server.worker", "ipykernel")
SHARED_MEMORY = Path("/dev/shm")


class Leftovers:
    """Finds what the workers and ranks of a hub leave behind. The hub's state is in the folder ``state``."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._temporary: set[Path] = set()

    def note(self) -> None:
        """Record the temporary folders in use, because their names do not show later which process created them."""
        for process in self._servers():
            with suppress(psutil.Error):
                paths = [*process.cmdline(), *(file.path for file in process.open_files())]
                self._temporary |= {folder for path in paths for folder in _temporary_folder(path)}

    def left(self, run: str | None) -> list[str]:
        """Return the processes, temporary folders and copies of states in shared memory that a run has left."""
        processes = [f"process {one.pid}: {command_of(one)}" for one in self._servers()]
        copies = sorted(SHARED_MEMORY.glob(f"farandole-{run}-*")) if run else []
        folders = sorted(path for path in self._temporary if path.exists())
        return [*processes, *map(str, copies), *map(str, folders)]

    def _servers(self) -> list[psutil.Process]:
        return [one for one in processes_of(self._state) if any(name in command_of(one) for name in SERVERS)]


def _temporary_folder(path: str) -> Iterator[Path]:
    """Yield Farandole's temporary folder that contains a path, if there is one."""
    place = Path(tempfile.gettempdir())
    with suppress(ValueError, IndexError):
        name = Path(path).relative_to(place).parts[0]
        if name.startswith("farandole-"):
            yield place / name
