"""The notices that operators leave for users: why a server was stopped, and messages.

The operators' service writes them to files in the hub's state folder, and the hub shows them on its pages.
This module imports only the standard library, so that the service starts fast.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

log = logging.getLogger("farandole.operators")

KEPT_DAYS = 7
MOST = 10
"""The number of notices that are kept for a user."""
MOST_CHARACTERS = 500


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice for a user, from the operator ``by``; ``servers`` are the names of the servers that were stopped."""

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
        return f"{self.by} stopped {names}. Reason: {self.text}"


class Notices:
    """The notices of all users of a hub, in one file for each user.

    Only the operators' service writes, in one thread. A file is replaced as a whole, so the hub reads a whole file.
    Both set a damaged file aside.
    """

    def __init__(self, state: Path) -> None:
        """Use the folder ``notices`` of the hub's state folder."""
        self._folder = state / "notices"

    def add(self, user: str, notice: Notice) -> None:
        """Keep a notice for a user, and forget the oldest ones if there are too many."""
        self._write(user, [*self._kept(user, notice.at), replace(notice, text=notice.text[:MOST_CHARACTERS])][-MOST:])

    def correct(self, user: str, notice: Notice, stopped: tuple[str, ...]) -> None:
        """Keep only those servers of a notice that did stop, and forget the notice if there are none."""
        kept = self._kept(user, notice.at)
        changed = [replace(each, servers=stopped) if each == notice else each for each in kept]
        self._write(user, changed if stopped else [each for each in kept if each != notice])

    def of(self, user: str, now: datetime | None = None, *, since: datetime | None = None) -> list[Notice]:
        """Return the notices of the last days for a user, the oldest first; none if the file is not readable.

        Notices from before ``since``, when the user was added, were for an earlier user with the same name.
        """
        try:
            kept = self._kept(user, now or datetime.now(UTC))
            return [notice for notice in kept if since is None or notice.at >= since]
        except OSError as exc:
            log.error("The notices for %r are not shown: %s", user, exc)
            return []

    def _kept(self, user: str, now: datetime) -> list[Notice]:
        """Return the notices that are not too old. A damaged file is kept with the suffix ``.old``."""
        path = self._path(user)
        try:
            found = [_notice(entry) for entry in json.loads(path.read_bytes())]
            return [notice for notice in found if notice.at > now - timedelta(days=KEPT_DAYS)]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError) as exc:
            path.replace(path.with_suffix(".old"))
            log.error("The notices for %r are damaged, and now in %s: %s", user, path.with_suffix(".old"), exc)
            return []

    def _write(self, user: str, notices: list[Notice]) -> None:
        """Replace the file of a user; a power failure leaves the old or the new file."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path(user).with_suffix(".part")
        with part.open("w", encoding="utf-8") as file:
            json.dump([{**asdict(each), "at": each.at.isoformat()} for each in notices], file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path(user))

    def _path(self, user: str) -> Path:
        # A hash, because a user name can contain any characters.
        return self._folder / f"{hashlib.sha256(user.encode()).hexdigest()}.json"


def _notice(entry: dict[str, Any]) -> Notice:
    return Notice(**{**entry, "at": datetime.fromisoformat(entry["at"]), "servers": tuple(entry["servers"])})
