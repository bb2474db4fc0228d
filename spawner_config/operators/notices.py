"""The notices that operators leave for users: why a server was stopped, and messages.

The operators' service writes them to files in the hub's state folder, and the hub shows them on its pages.
This module imports only the standard library, so that the service starts fast.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
    def sentence(self) -> str:
        """The notice as one line of text."""
        when = f"{self.at:%Y-%m-%d %H:%M} UTC"
        if not self.servers:
            return f"{when}, message from {self.by}: {self.text}"
        names = ", ".join(f"the server {name}" if name else "your notebook server" for name in self.servers)
        return f"{when}: {self.by} stopped {names}. Reason: {self.text}"


class Notices:
    """The notices of all users of a hub, in one file for each user.

    Only the operators' service writes, in one thread. A file is replaced as a whole, so the hub reads a whole file.
    """

    def __init__(self, state: Path) -> None:
        """Use the folder ``notices`` of the hub's state folder."""
        self._folder = state / "notices"

    def add(self, user: str, notice: Notice) -> None:
        """Keep a notice for a user, and forget the oldest ones if there are too many."""
        kept = [*self.of(user, notice.at), replace(notice, text=notice.text[:MOST_CHARACTERS])][-MOST:]
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path(user).with_suffix(".part")
        part.write_text(json.dumps([{**asdict(each), "at": each.at.isoformat()} for each in kept]), encoding="utf-8")
        part.replace(self._path(user))

    def of(self, user: str, now: datetime | None = None) -> list[Notice]:
        """Return the notices of the last days for a user, the oldest first."""
        since = (now or datetime.now(UTC)) - timedelta(days=KEPT_DAYS)
        path = self._path(user)
        entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        found = [Notice(**{**each, "at": datetime.fromisoformat(each["at"])}) for each in entries]
        return [notice for notice in found if notice.at > since]

    def _path(self, user: str) -> Path:
        # A hash, because a user name can contain any characters.
        return self._folder / f"{hashlib.sha256(user.encode()).hexdigest()}.json"
