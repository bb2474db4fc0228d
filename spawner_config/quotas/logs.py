"""Bounds the log files of servers that are local processes: what a user's program prints must not fill the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 20 * 2**20
KEPT_BYTES = 2**20


def bound_log(path: Path, most: int = MOST_BYTES, kept: int = KEPT_BYTES) -> None:
    """Cut a log that has more than ``most`` bytes to its last ``kept`` bytes.

    A process that still writes must have opened the file for appending. What it writes meanwhile may be lost. Raises
    OSError if the file does not exist.
    """
    size = path.stat().st_size
    if size <= most:
        return
    with path.open("a+b") as log:
        log.seek(size - kept)
        last = log.read(kept).partition(b"\n")[2]
        log.truncate(0)
        log.write(last)
