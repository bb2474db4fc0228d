"""Lists the folders in a snapshot, and counts what has changed since an earlier one."""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import NamedTuple

from farandole.exceptions import SnapshotError
from farandole.snapshots.model import Snapshot, Version, seconds
from farandole.snapshots.restore import inside
from farandole.snapshots.snapshots import Snapshots

STATISTICS = b'"message_type":"statistics"'
"""The mark of restic's last line about a difference. In names of files, the quotes would be escaped."""


class Entry(NamedTuple):
    """What a folder of a snapshot contains under a name.

    Attributes:
        name: its name. restic replaces bytes that are not UTF-8.
        kind: file, dir, symlink, fifo, dev or chardev, as restic says.
        size: the bytes of a file, otherwise 0.
        modified: when it was last changed, in seconds since the epoch.
    """

    name: str
    kind: str
    size: int
    modified: float


class ChangeCount(NamedTuple):
    """How many files were added, removed or changed between two snapshots, and how many bytes were added."""

    files: int
    added: int


class SnapshotContents(Snapshots):
    """The snapshots of the user's home, with what programs need that show the content of snapshots."""

    @property
    def home(self) -> Path:
        """The home, without symbolic links."""
        return self._home

    def relative(self, path: str | Path) -> PurePath:
        """Return a path within the home. Raises UsageError if it is not there."""
        return self._relative(path)

    def versions(self, path: PurePath) -> list[Version]:
        """Return the snapshots that have a path of the home, oldest first.

        Unlike `list` and `restore`, this method and the next one do not follow links that are in the home now: a folder
        of a snapshot may have been moved since, and replaced by a link. They raise the same errors.
        """
        return self._versions(path)

    def restore_entry(self, path: PurePath, at: str, to: Path | None, *, keep_both: bool) -> Path:
        """Restore a path of the home, and return where it is now."""
        return self._restore(path, at, to, keep_both=keep_both)

    def folder(self, snapshot: Snapshot, path: PurePath) -> list[Entry] | None:
        """Return what is in a folder of a snapshot, folders first, or None if the snapshot has no such folder.

        The folders in it are not read. Raises `SnapshotError` if the snapshot cannot be read, or exists no longer.
        """
        place, kind, exists = inside(path), "" if path.name else "dir", False
        found: list[Entry] = []
        with self._restic().running("ls", "--no-lock", "--", snapshot.id, place) as output:
            for line in output.stdout:
                node = json.loads(line)
                if node["struct_type"] != "node":
                    exists = True
                elif node["path"] == place:
                    kind = node["type"]
                else:
                    modified = seconds(node.get("mtime", ""))
                    found.append(Entry(node["name"], node["type"], node.get("size", 0), modified))
        if not exists:
            # restic 0.14 only warns.
            raise SnapshotError(f"The hub has removed the snapshot {snapshot.short_id}. Choose another one.")
        return sorted(found, key=lambda one: (one.kind != "dir", one.name)) if kind == "dir" else None

    def changes(self, older: Snapshot, newer: Snapshot) -> ChangeCount:
        """Return how many files differ between two snapshots, and the bytes that only the newer one has.

        Raises `SnapshotError` if the snapshots cannot be read.
        """
        with self._restic().running("diff", "--no-lock", "--", older.id, newer.id) as output:
            lines = [line for line in output.stdout if STATISTICS in line]
        found = json.loads(lines[0])
        return ChangeCount(
            files=found["changed_files"] + found["added"]["files"] + found["removed"]["files"],
            added=found["added"]["bytes"],
        )
