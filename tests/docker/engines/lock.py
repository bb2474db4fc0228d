"""Locks for resources that only one test session at a time may use on this machine."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tests.docker.engines.daemon import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCKS = Path("/run/lock")
WAIT_SECONDS = 300.0


@contextmanager
def locked(name: str, seconds: float = WAIT_SECONDS, folder: Path = LOCKS) -> Iterator[None]:
    """Hold the lock ``name``. Raises `SetUpError` if another process still holds the lock after ``seconds``.

    The operating system releases the lock when the process ends for any reason. Child processes do not inherit the
    lock.
    """
    path = folder / f"{name}.lock"
    with path.open("w") as lock:
        wait_for(lambda: _taken(lock), f"Waiting for another test session, which holds {path},", seconds)
        yield


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
