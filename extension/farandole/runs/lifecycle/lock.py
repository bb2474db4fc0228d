"""Lets one process at a time change a run store, on all hosts that share it."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from farandole.reading import SAFE

LOCK = ".lock"
"""Name of the file in a run store that a process locks. NFS locks only files that are open for writing."""
LOCK_SECONDS = 10.0
"""How many seconds to wait for another process. A change of a run takes milliseconds."""
POLL_SECONDS = 0.02
NO_LOCK = {errno.ENOSPC, errno.EDQUOT, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Errors of volumes that are full or do not support locks. A full volume must not prevent the deletion of runs."""


@contextmanager
def changing(store: Path) -> Iterator[None]:
    """Keep other threads and processes out of this context while one changes a run in a store.

    A driver takes over a run in this context, and a run is deleted and its notes are changed in it. The context must
    not be nested. On volumes that are full or have no locks, nobody is kept out.

    Raises OSError if the volume cannot be used, or if another process keeps the lock for `LOCK_SECONDS`.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.open(store / LOCK, os.O_RDWR | os.O_CREAT | SAFE, 0o600)
            stack.callback(os.close, descriptor)
            _lock(descriptor, store)
        except OSError as exc:
            if exc.errno not in NO_LOCK:
                raise
        yield


def _lock(descriptor: int, store: Path) -> None:
    give_up = time.monotonic() + LOCK_SECONDS
    while not _is_locked(descriptor):
        if time.monotonic() > give_up:
            raise TimeoutError(errno.ETIMEDOUT, "Another server keeps the runs locked", str(store))
        time.sleep(POLL_SECONDS)


def _is_locked(descriptor: int) -> bool:
    """Lock the file unless another process has locked it. Return whether this process has the lock now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
