"""What one backup consists of. The manifest is stored last, so a backup without one is incomplete."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Self

from hub.backup.place import BackupError

FILE = "manifest.json"
FORMAT = 1
STATE, SETTINGS, MANIFEST = "state", "settings", "manifest"
"""The parts of each backup that are no folders of users."""
REPOSITORIES = "repositories"
"""How the names of the parts with users' snapshots begin."""
PART = re.compile(r"state|settings|repositories/(1|2|3)|(home|group)/[a-z0-9][a-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a backup, which is a snapshot of restic.

    Attributes:
        name: for example ``state``, ``home/ada`` or ``group/vision``.
        snapshot: the snapshot's id, or empty if the folder was.
        bytes, files: the size of the content.
        owner: the full name of the user, or empty if the hub does not say.
        unread: how many files could not be read.
    """

    name: str
    snapshot: str
    bytes: int
    files: int
    owner: str = ""
    unread: int = 0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A complete backup.

    Attributes:
        id: the name of the backup.
        hub: the random id of the hub.
        time: when the backup began, in ISO format.
        version: the version of Farandole.
        schema: the revision of the database's schema, or empty if it is not known.
        deployment: the value of FARANDOLE_DEPLOYMENT.
        database: ``sqlite``, ``postgresql``, or ``elsewhere`` if it is not part of the backup.
        parts: all parts.
    """

    id: str
    hub: str
    time: str
    version: str
    schema: str
    deployment: str
    database: str
    parts: tuple[Part, ...]
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        """The size of all parts."""
        return sum(part.bytes for part in self.parts)

    def part(self, name: str) -> Part | None:
        """Return the part with a name, or None if there is none."""
        return next((part for part in self.parts if part.name == name), None)

    def to_json(self) -> str:
        """Return the text of the manifest's file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str, source: str) -> Self:
        """Read a manifest from the backup ``source``; raises `BackupError` if this version cannot."""
        try:
            values = json.loads(text)
            parts = tuple(Part(**part) for part in values.pop("parts"))
            found = cls(**values, parts=parts)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise BackupError(
                f"The manifest of the backup {source} cannot be read: {exc}. Use the version of Farandole that made it."
            ) from exc
        # The names become paths.
        wrong = [part.name for part in parts if not PART.fullmatch(part.name)]
        if found.format != FORMAT or wrong:
            raise BackupError(
                f"The manifest of the backup {source} has a form or parts that this version does not know. Use the "
                f"version of Farandole that made it: {found.version}."
            )
        return found
