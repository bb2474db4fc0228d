"""The notices that operators and administrators leave for users: who stopped a server and why, and messages.

They are in files in the hub's state folder. The operators' service and the hub write them, and the hub shows them to
users on its pages and in JupyterLab. This module imports only the standard library, so that the service starts fast.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("farandole.operators")

KEPT_DAYS = 7
MOST = 10
"""The number of notices that are kept for a user."""
MOST_CHARACTERS = 500
LOCK = ".lock"
"""The suffix of the file that is locked while the notices of a user change."""
LOCK_SECONDS = 10.0
"""How many seconds a change waits for others. Each of them takes milliseconds."""
POLL_SECONDS = 0.02
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of volumes that do not support locks."""
DAMAGED = (ValueError, TypeError, KeyError)
"""The errors of a file that contains no list of notices."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice for a user. ``by`` is an operator or administrator, ``servers`` are the servers that were stopped.

    ``text`` is empty if a stop has no reason.
    """

    by: str
    at: datetime
    text: str
    servers: tuple[str, ...] = ()

    @property
    def when(self) -> str:
        """The time of the notice as text, such as 2026-12-02 08:00 UTC."""
        return f"{self.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

    @property
    def sentence(self) -> str:
        """The notice as one line of text, without its time."""
        if not self.servers:
            return f"message from {self.by}: {self.text}"
        names = ", ".join(f"the server {name}" if name else "your notebook server" for name in self.servers)
        return f"{self.by} stopped {names}. Reason: {self.text or 'none given.'}"


class Notices:
    """The notices of all users of a hub, in one file for each user.

    - The operators' service and the hub change a file one at a time: its lock keeps other threads and processes out.
    - A file is replaced as a whole, so it is read without the lock.
    - A damaged file is set aside.
    """

    def __init__(self, state: Path) -> None:
        """Use the folder ``notices`` of the hub's state folder."""
        self._folder = state / "notices"

    def add(self, user: str, notice: Notice) -> None:
        """Keep a notice for a user, and forget the oldest ones if there are too many.

        Raises OSError if the disk is full or another process does not release the lock, as does `correct`.
        """
        short = replace(notice, text=notice.text[:MOST_CHARACTERS])
        with self._changing(user):
            self._write(user, [*self._repaired(user, notice.at), short][-MOST:])

    def correct(self, user: str, notice: Notice, stopped: tuple[str, ...]) -> None:
        """Keep only those servers of a notice that did stop, and forget the notice if there are none."""
        with self._changing(user):
            kept = self._repaired(user, notice.at)
            changed = [replace(each, servers=stopped) if each == notice else each for each in kept]
            self._write(user, changed if stopped else [each for each in kept if each != notice])

    def of(self, user: str, now: datetime | None = None, *, since: datetime | None = None) -> list[Notice]:
        """Return the notices of the last days for a user, the oldest first; none if the file is not readable.

        Notices from before ``since``, when the user was added, were for an earlier user with the same name.
        """
        try:
            kept = self._kept(user, now or datetime.now(UTC))
        except OSError as exc:
            log.error("The notices for %r are not shown: %s", user, exc)
            return []
        return [notice for notice in kept if since is None or notice.at >= since]

    def _kept(self, user: str, now: datetime) -> list[Notice]:
        """Return the notices that are not too old, without the lock unless the file is damaged."""
        try:
            return self._read(user, now)
        except DAMAGED:
            # Another process may have repaired the file since. The hub's pages do not wait for one that still does.
            with self._changing(user, seconds=0.0):
                return self._repaired(user, now)

    def _repaired(self, user: str, now: datetime) -> list[Notice]:
        """Return the notices that are not too old. A damaged file gets the suffix ``.old``. This needs the lock."""
        try:
            return self._read(user, now)
        except DAMAGED as exc:
            path = self._path(user)
            path.replace(path.with_suffix(".old"))
            log.error("The notices for %r are damaged, and now in %s: %s", user, path.with_suffix(".old"), exc)
            return []

    def _read(self, user: str, now: datetime) -> list[Notice]:
        """Return the notices that are not too old; raises one of `DAMAGED` if the file contains something else."""
        try:
            content = self._path(user).read_bytes()
        except FileNotFoundError:
            return []
        found = [_notice(entry) for entry in json.loads(content)]
        return [notice for notice in found if notice.at > now - timedelta(days=KEPT_DAYS)]

    def _write(self, user: str, notices: list[Notice]) -> None:
        """Replace the file of a user; a power failure leaves the old or the new file."""
        # The name of the new file is unique, because on a volume without locks two processes can write at once.
        descriptor, name = tempfile.mkstemp(prefix=f"{self._path(user).stem}.", suffix=".part", dir=self._folder)
        part = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump([{**asdict(each), "at": each.at.isoformat()} for each in notices], file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path(user))
        finally:
            part.unlink(missing_ok=True)

    @contextmanager
    def _changing(self, user: str, seconds: float | None = None) -> Iterator[None]:
        """Keep others from changing the notices of a user in this context, except on volumes without locks.

        Raises TimeoutError if others stay in it for ``seconds``, by default for `LOCK_SECONDS`.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path(user).with_suffix(LOCK).open("w") as lock:
            _take(lock, LOCK_SECONDS if seconds is None else seconds)
            yield

    def _path(self, user: str) -> Path:
        # A hash, because a user name can contain any characters.
        return self._folder / f"{hashlib.sha256(user.encode()).hexdigest()}.json"


def _take(lock: IO[str], seconds: float) -> None:
    """Lock a file until it is closed."""
    give_up = time.monotonic() + seconds
    while not _is_taken(lock):
        if time.monotonic() >= give_up:
            raise TimeoutError(errno.ETIMEDOUT, "Another process keeps the notices locked", lock.name)
        time.sleep(POLL_SECONDS)


def _is_taken(lock: IO[str]) -> bool:
    """Lock a file unless it is locked elsewhere. Return whether it is locked for this process, or cannot be locked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as exc:
        if exc.errno not in NO_LOCKS:
            raise
    return True


def _notice(entry: dict[str, Any]) -> Notice:
    return Notice(**{**entry, "at": datetime.fromisoformat(entry["at"]), "servers": tuple(entry["servers"])})
