"""The record of the hub's last backup, which `make backup` writes; operators and `make doctor` see it.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

FILE = "backup.json"
"""The record's file in the hub's state folder."""


@dataclass(frozen=True, kw_only=True)
class BackupRecord:
    """A complete backup: its name, when it began in ISO format, its place without a login, and its size."""

    id: str
    time: str
    place: str
    bytes: int

    @classmethod
    def read(cls, state: Path) -> Self | None:
        """Return the record in a state folder, or None if there is none that this version can read.

        Raises PermissionError.
        """
        try:
            return cls.from_json((state / FILE).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Return the record in a file's text, or None if this version cannot read it."""
        try:
            found = cls(**json.loads(text))
            found.age(datetime.now(UTC))
        except (ValueError, TypeError):
            return None
        return found

    def write(self, state: Path) -> None:
        """Write the record. A process that is killed meanwhile leaves the earlier one."""
        path = state / FILE
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)

    def age(self, now: datetime) -> float:
        """Return the seconds since the backup."""
        return (now - datetime.fromisoformat(self.time)).total_seconds()

    @property
    def text(self) -> str:
        """The record as part of a sentence."""
        when = datetime.fromisoformat(self.time).strftime("%Y-%m-%d %H:%M UTC")
        return f"{when}, {self.bytes / 2**30:.2f} GiB, at {self.place}"
