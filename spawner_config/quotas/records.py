"""What servers have last told the hub about the homes of their users, in small files of the hub's state folder."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from jupyterhub.slugs import safe_slug

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "home_use"
LARGEST = 2**60
"""The largest number of bytes that is believed."""


@dataclass(frozen=True, kw_only=True)
class HomeRecord:
    """How many bytes a home took at a ``time``, and its limit. A server has told it, so a user can make it wrong."""

    used: int
    limit: int
    time: float

    @classmethod
    def parsed(cls, body: object) -> Self | None:
        """Return the record that a request contains, or None if the request is invalid."""
        if not isinstance(body, dict):
            return None
        used: Any = body.get("used")
        limit: Any = body.get("limit")
        if not all(type(number) is int and 0 <= number <= LARGEST for number in (used, limit)):
            return None
        return cls(used=used, limit=limit, time=time.time())


class HomeRecords:
    """The records of all users below the hub's state folder. Only their own server writes a user's record."""

    def __init__(self, state: Path) -> None:
        """Use the folder ``home_use`` of the state folder, which need not exist."""
        self._folder = state / FOLDER

    def read(self, user: str) -> HomeRecord | None:
        """Return a user's record, or None if there is none that can be read."""
        try:
            return HomeRecord(**json.loads(self._path(user).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, user: str, record: HomeRecord) -> None:
        """Replace a user's record. Raises OSError, for example if the disk is full; the earlier record remains."""
        path = self._path(user)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(record)), encoding="utf-8")
        part.replace(path)

    def _path(self, user: str) -> Path:
        return self._folder / f"{safe_slug(user)}.json"
