"""What became of the last attempt to mirror the hub, which the service for snapshots writes and operators see.

This module imports only the standard library, because the operators' service, for which the hub waits, uses it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path


def service_folder(state: Path) -> Path:
    """Return the folder with the service's own files, below the folder of all repositories.

    The names of repositories begin with no point.
    """
    return state / "snapshots" / ".service"


@dataclass(frozen=True, kw_only=True)
class MirrorRecord:
    """What became of the last attempts to mirror the hub.

    Attributes:
        place: the address of the mirror.
        finished: when the last attempt began that came to its end, in seconds since 1970; 0 if there was none.
        problems: what went wrong in the last attempt, in sentences.
        users: the owners of all repositories, by the names of these.
        copied: by the name of a repository, a digest of the snapshots that it had when all of them had been copied.
    """

    place: str
    finished: float = 0.0
    problems: list[str] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)
    copied: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, state: Path) -> Self | None:
        """Return the record in the hub's state folder, or None if there is none that this version can read."""
        try:
            return cls(**json.loads(record_path(state).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, state: Path) -> None:
        """Write the record. A process that is killed meanwhile leaves the earlier one."""
        path = record_path(state)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.replace(path)


def record_path(state: Path) -> Path:
    """Return the path of the record."""
    return service_folder(state) / "mirror.json"
