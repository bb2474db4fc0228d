"""Which backups are complete, and the removal of old ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hub.backup.manifest import FILE, MANIFEST, Manifest
from hub.backup.place import BackupError
from hub.backup.repository import LockedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hub.backup.repository import Repository


class Backups:
    """The backups in a repository, by their snapshots; the oldest come first."""

    def __init__(self, repository: Repository, snapshots: Sequence[dict[str, Any]]) -> None:
        self._repository = repository
        self._snapshots = snapshots
        self.hubs: dict[str, str] = {}
        """The hub of each backup by the backup's name."""
        self._manifests: dict[str, str] = {}
        for each in snapshots:
            tags = dict(tag.split("=", 1) for tag in each.get("tags") or () if "=" in tag)
            if not {"backup", "hub", "part"} <= tags.keys():
                continue
            self.hubs[tags["backup"]] = tags["hub"]
            if tags["part"] == MANIFEST:
                self._manifests[tags["backup"]] = str(each["id"])

    def complete(self, hub: str = "") -> list[str]:
        """Return the names of all complete backups, or of those of one hub."""
        return sorted(each for each in self._manifests if not hub or self.hubs[each] == hub)

    def incomplete(self) -> list[str]:
        """Return the names of backups that were interrupted."""
        return sorted(self.hubs.keys() - self._manifests.keys())

    def manifest(self, backup: str) -> Manifest:
        """Return the manifest of a complete backup."""
        return Manifest.from_json(self._repository.read(self._manifests[backup], FILE), backup)

    def snapshots_of(self, backups: Sequence[str]) -> list[str]:
        """Return the ids of all snapshots of these backups."""
        wanted = {f"backup={each}" for each in backups}
        return [str(each["id"]) for each in self._snapshots if wanted & set(each.get("tags") or ())]


def remove_old(repository: Repository, hub: str, keep: int) -> None:
    """Remove all backups of a hub but the newest ``keep`` that are complete. A failure only prints a message."""
    found = Backups(repository, repository.snapshots(f"hub={hub}"))
    kept = found.complete(hub)[-keep:]
    # The names begin with the time. A backup that was interrupted goes as soon as a later one is complete.
    old = [each for each in found.hubs if each not in kept and each < kept[-1]]
    if not old:
        return
    try:
        repository.unlock()
        repository.forget(found.snapshots_of(old))
    except LockedError as exc:
        print(f"Old backups stay for now. {exc}", file=sys.stderr)
    except BackupError as exc:
        print(f"Old backups could not be removed. {exc}", file=sys.stderr)
    else:
        print(f"Removed {len(old)} old backups.", file=sys.stderr)
