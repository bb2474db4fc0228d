"""What a process is asked to do that has the hub's volumes, as JSON: `python -m hub.backup.agent` reads it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from hub.backup.manifest import MANIFEST, REPOSITORIES, SETTINGS, STATE
from hub.services.snapshots.mirrors.place import MirrorPlace

SAVE, CHOOSE, STAGE, COMMIT, LIST = "save", "choose", "stage", "commit", "list"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One step of a backup or restore.

    Attributes:
        action: the step.
        place: the address of the backups, with ``user`` and ``secret`` to log in there.
        passphrase: the passphrase of the backups.
        deployment: the value of FARANDOLE_DEPLOYMENT.
        state: the hub's state folder.
        folders: for each home and group folder by the name of its part, a folder and the path below it.
        owners: the users' full names by the name of the part.
        settings: the contents of the operator's files by their names.
        database: ``sqlite``, ``postgresql`` or ``elsewhere``; ``dump`` is the dump of PostgreSQL, and ``schema`` and
            ``users`` are what it contains.
        homes: how many homes and group folders the hub has.
        backup: the backup to restore, or empty for the newest.
        replace, other_hub: whether the hub may have users, and whether the backup may be of another hub.
        keep: how many complete backups stay, or 0 for all.
    """

    action: str
    place: str
    passphrase: str = field(repr=False)
    state: str
    user: str = ""
    secret: str = field(default="", repr=False)
    deployment: str = "local"
    folders: dict[str, tuple[str, str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    database: str = "sqlite"
    dump: str = field(default="", repr=False)
    schema: str = ""
    users: int = 0
    homes: int = 0
    backup: str = ""
    replace: bool = False
    other_hub: bool = False
    keep: int = 0

    @property
    def at(self) -> MirrorPlace:
        """The place of the backups."""
        return MirrorPlace(address=self.place, user=self.user, secret=self.secret)

    def target(self, part: str) -> tuple[Path, str]:
        """Return the folder that a part belongs to, and the path below it, which is empty for the folder itself."""
        if part in (STATE, SETTINGS, MANIFEST):
            return Path(self.state), ""
        if part.startswith(REPOSITORIES):
            return Path(self.state) / "snapshots", ""
        root, below = self.folders[part]
        return Path(root), below

    def to_json(self) -> str:
        """Return the job for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` has written."""
        values = json.loads(text)
        values["folders"] = {part: (root, below) for part, (root, below) in values["folders"].items()}
        return cls(**values)
