"""Shows other hosts that the driver of a run is still alive.

A process can be checked only on its own host, and in containers each start of a server has another host name. The
driver therefore touches a file in the run's folder during the run, whether or not the ranks report anything.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from farandole.reading import SAFE

HEARTBEAT = "driver.alive"
BEAT_SECONDS = 10.0
SILENT_SECONDS = 300.0
"""A driver on another host counts as gone after this many seconds without a sign of life.

An NFS client may show a change one minute late, and the clocks of the hosts may differ.
"""
SIGNS = (HEARTBEAT, "positions.json", "view.json", "run.json")
"""The files that the driver changes during a run. Drivers of earlier versions do not write the first one."""


class Heartbeat:
    """The driver's end. Only one thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / HEARTBEAT
        self._due = 0.0

    def beat(self) -> None:
        """Touch the file if `BEAT_SECONDS` have passed. Never create the folder. Errors are ignored and retried."""
        if time.monotonic() >= self._due:
            with suppress(OSError):
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | SAFE, 0o644)
                try:
                    os.utime(descriptor)
                finally:
                    os.close(descriptor)
                self._due = time.monotonic() + BEAT_SECONDS


def is_silent(folder: Path) -> bool:
    """Return whether no file in a run's folder shows that the driver was alive in the last `SILENT_SECONDS`.

    Return False if no file can be read now, for example because the connection to the storage is lost.
    """
    times = []
    for name in SIGNS:
        with suppress(OSError):
            times.append((folder / name).lstat().st_mtime)
    return bool(times) and time.time() - max(times) > SILENT_SECONDS
