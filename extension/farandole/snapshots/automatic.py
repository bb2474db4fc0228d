"""Takes snapshots of the user's home in the background of a notebook server, as often as the hub says."""

from __future__ import annotations

import fcntl
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from logging import Logger
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from farandole.exceptions import FarandoleError
from farandole.reading import printable
from farandole.runs.lifecycle.lock import NO_LOCK
from farandole.sizes import size_text
from farandole.snapshots.model import TakenSnapshot
from farandole.snapshots.snapshots import Snapshots
from farandole.times import duration_text

MINUTES = "FARANDOLE_SNAPSHOTS_MINUTES"
"""The variable that the hub sets in notebook servers, unless it wants no automatic snapshots."""
OFF = "off"
FIRST_SECONDS = 600.0
"""The longest wait after the start of a server. It differs between servers, so that a class does not ask at once."""
LOCK = ".cache/farandole/snapshots.lock"
"""The file in the home that a server locks while it takes an automatic snapshot."""


class Failure(NamedTuple):
    """When an automatic snapshot could not be taken, in seconds since the epoch, and why."""

    time: float
    reason: str


def take_automatically(log: Logger, environ: Mapping[str, str] = os.environ) -> AutomaticSnapshots | None:
    """Take automatic snapshots until this process ends, if the hub says how often. Otherwise return None."""
    automatic = None
    if (minutes := environ.get(MINUTES, OFF)) != OFF:
        automatic = AutomaticSnapshots(Snapshots(background=True), Path.home(), 60 * float(minutes), log)
        # The server does not wait for this thread when it ends, and restic ends with the thread.
        Thread(target=automatic.run, name="farandole-snapshots", daemon=True).start()
    return automatic


class AutomaticSnapshots:
    """Takes a snapshot whenever the newest one is older than ``seconds`` and files have changed."""

    def __init__(self, snapshots: Snapshots, home: Path, seconds: float, log: Logger) -> None:
        """Write to ``log`` what was taken, and why something was not."""
        self._snapshots = snapshots
        self._lock = home / LOCK
        self._seconds = seconds
        self._log = log
        self.failure: Failure | None = None
        """The last failure, or None if the last try has succeeded."""

    def run(self) -> None:
        """Take snapshots as long as the process lives."""
        wait = random.uniform(0.5, 1.0) * min(FIRST_SECONDS, self._seconds)
        while True:
            time.sleep(wait)
            wait = self.take_if_due()

    def take_if_due(self) -> float:
        """Take a snapshot if it is time for it, and return after how many seconds to call this again."""
        try:
            with alone(self._lock) as is_alone:
                wait = self._take_if_due() if is_alone else self._seconds
            self.failure = None
            return wait
        except (FarandoleError, OSError) as exc:
            self.failure = Failure(time.time(), printable(str(exc)))
            again = duration_text(self._seconds)
            self._log.warning("No automatic snapshot was taken. The next try is in %s. The reason: %s", again, exc)
            return self._seconds

    def _take_if_due(self) -> float:
        # Another server of the user, or the user, may have taken one. One from the future has a wrong time.
        ages = [time.time() - one.time for one in self._snapshots.list()[-1:]]
        if ages and 0 <= ages[0] < self._seconds:
            return self._seconds - ages[0]
        if self._snapshots.has_changes():
            self._log.info("%s", _taken(self._snapshots.take()))
        return self._seconds


def _taken(taken: TakenSnapshot) -> str:
    unread = f"; {len(taken.unread)} could not be read" if taken.unread else ""
    return f"Took the automatic snapshot {taken.short_id}: {taken.files:,} files, new: {size_text(taken.added)}{unread}"


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Yield whether no other process is in this context with the same file.

    A disk that is full or has no locks keeps nobody out: two snapshots are better than none.
    """
    with ExitStack() as stack:
        yield _locked(path, stack)


def _locked(path: Path, stack: ExitStack) -> bool:
    """Lock a file until the end of ``stack``. Return False if another process has locked it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fcntl.flock(stack.enter_context(path.open("ab")), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        if exc.errno not in NO_LOCK:
            raise
    return True
