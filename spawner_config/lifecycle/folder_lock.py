"""A lock on a folder that only one process may use, such as a NATS server, which a killed hub may have left."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "lock"
END_SECONDS = 10.0
POLL_SECONDS = 0.05


class InUseError(RuntimeError):
    """Raised when another process uses the folder. The message contains the folder and a remedy."""


def lock_folder(folder: Path) -> None:
    """Lock a folder until this process, and the program that it becomes, has ended. Raises `InUseError`."""
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _try(handle):
        os.close(handle)
        raise InUseError(f"Another process uses the folder {folder}. Stop it, or choose another folder.")
    os.ftruncate(handle, 0)
    os.write(handle, str(os.getpid()).encode())
    # The program that this process becomes inherits the lock with the handle.
    os.set_inheritable(handle, True)


def end_holder(folder: Path) -> None:
    """End the process of this machine that has locked a folder, which a killed hub has left.

    The process with the number in the file holds the lock, so the number cannot be that of a later process.
    """
    with suppress(FileNotFoundError), (folder / LOCK).open(encoding="ascii") as file:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if _ended(file, number):
                return
        raise InUseError(f"The process {_read(file)} uses the folder {folder} and cannot be ended. End it.")


def _ended(file: IO[str], number: signal.Signals) -> bool:
    """Send a signal to the holder of the lock if there is one. Return whether the lock is free soon after."""
    end, sent = time.monotonic() + END_SECONDS, False
    while not _try(file.fileno()):
        if time.monotonic() > end:
            return False
        # A process that has just taken the lock has not written its number yet.
        if not sent and (holder := _read(file)):
            with suppress(ProcessLookupError):
                os.kill(int(holder), number)
            sent = True
        time.sleep(POLL_SECONDS)
    return True


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
