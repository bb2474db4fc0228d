"""The use of the user's home: what is measured, how much the user may still write, and what users read about it.

A file system that is no larger than the limit enforces the limit itself, for example a volume with a project quota. Its
own numbers are exact. Other homes are measured by walking through them (see `farandole.quotas.measure`), and the last
measurement is in the file `RECORD` of the home, so that all servers of the user share it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.protocol import is_number
from farandole.reading import printable, read_json
from farandole.sizes import share_text, size_text

LIMIT = "FARANDOLE_HOME_LIMIT"
"""The variable with the limit in bytes, which the hub sets in servers of users who have one."""
RECORD = ".cache/farandole/home.json"
RECORD_BYTES = 2**16
"""The largest record that is read. It names at most `MOST_PARTS` folders and files."""
MOST_PARTS = 3
WARN_SHARE = 0.9
SAME_SIZE = 1.05
"""Volumes are a little larger than requested on some storage, which allocates whole extents."""
REMEDY = (
    "Delete files that you no longer need, such as old runs in the panel, or ask the administrator for a larger home"
)
LEAST_FREE = 2**20
"""With fewer free bytes, a home is full: a run could not even write its own files."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """How many bytes the home took at a ``time``, and how many ``seconds`` the measurement lasted.

    ``largest`` are the folders and files that take most, with their bytes. Their paths are relative to the home.
    """

    used: int
    time: float
    seconds: float
    largest: tuple[tuple[str, int], ...] = ()

    @classmethod
    def read(cls, home: Path) -> Measurement | None:
        """Return the last measurement, or None if there is none that can be read."""
        with suppress(OSError, ValueError):
            return cls._parsed(read_json(home, RECORD, RECORD_BYTES))
        return None

    @classmethod
    def _parsed(cls, record: dict[str, Any]) -> Measurement | None:
        used, largest = record.get("used"), record.get("largest")
        numbers = [record.get(name) for name in ("time", "seconds")]
        if type(used) is not int or used < 0 or not all(map(is_number, numbers)) or not isinstance(largest, dict):
            return None
        if not all(type(size) is int for size in largest.values()):
            return None
        folders = tuple((printable(path), size) for path, size in list(largest.items())[:MOST_PARTS])
        return cls(used=used, time=float(numbers[0] or 0), seconds=float(numbers[1] or 0), largest=folders)


@dataclass(frozen=True, kw_only=True)
class HomeUse:
    """The use of a home, in bytes. ``used`` is None until the home has been measured.

    ``free`` is how much the user may still write: what is left of the limit, or of the disk if that is less.
    """

    used: int | None
    limit: int
    free: int
    largest: tuple[tuple[str, int], ...] = ()

    @property
    def is_full(self) -> bool:
        """Whether new runs are refused."""
        return self.free < LEAST_FREE

    @property
    def is_nearly_full(self) -> bool:
        """Whether the user is warned."""
        return self.free < (1 - WARN_SHARE) * self.limit

    @property
    def text(self) -> str:
        """How much is used and free, such as ``8.2 GiB of 10.0 GiB used, 1.8 GiB free``."""
        used = f"limit {size_text(self.limit)}" if self.used is None else f"{share_text(self.used, self.limit)} used"
        return f"{used}, {size_text(self.free)} free"

    @property
    def warning(self) -> str:
        """A sentence for a user whose home is full or nearly full, or an empty string."""
        if self.is_full:
            return f"Your home is full ({self.text}), so new runs are refused. {self.advice}."
        if self.is_nearly_full:
            return f"Your home is nearly full ({self.text}). New runs are refused when it is full. {self.advice}."
        return ""

    @property
    def advice(self) -> str:
        """What takes most, and what to do."""
        parts = ", ".join(f"~/{path} {size_text(size)}" for path, size in self.largest)
        return f"What takes most: {parts}. {REMEDY}" if parts else REMEDY


def limit_of(environ: Mapping[str, str]) -> int | None:
    """Return the limit of the home in bytes, or None if the hub sets none."""
    text = environ.get(LIMIT, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) else None


def use_of(home: Path, limit: int, measured: Measurement | None) -> HomeUse:
    """Return the use of a home, given its last measurement. Raises OSError if its file system does not answer."""
    disk = os.statvfs(home)
    largest = () if measured is None else measured.largest
    used, free = (disk.f_blocks - disk.f_bfree) * disk.f_frsize, disk.f_bavail * disk.f_frsize
    if is_own_disk(disk, limit):
        # As `df` does: what is reserved for root is not part of the user's space.
        return HomeUse(used=used, limit=used + free, free=free, largest=largest)
    if measured is None:
        return HomeUse(used=None, limit=limit, free=min(limit, free))
    return HomeUse(used=measured.used, limit=limit, free=min(max(0, limit - measured.used), free), largest=largest)


def is_own_disk(disk: os.statvfs_result, limit: int) -> bool:
    """Return whether a file system is so small that it enforces the limit."""
    return disk.f_blocks * disk.f_frsize <= SAME_SIZE * limit


def read_use(environ: Mapping[str, str] = os.environ, home: Path | None = None) -> HomeUse | None:
    """Return the use of the user's home according to the last measurement.

    It is None if the hub sets no limit, or if the file system does not answer.
    """
    limit, home = limit_of(environ), home or Path.home()
    if limit is None:
        return None
    with suppress(OSError):
        return use_of(home, limit, Measurement.read(home))
    return None
