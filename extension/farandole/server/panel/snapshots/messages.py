"""Converts entries and versions of snapshots to messages, which compare them with what is in the home now."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from farandole.reading import printable
from farandole.server.panel import wire_routes
from farandole.snapshots.contents import Entry
from farandole.snapshots.model import Snapshot, TakenSnapshot, Version

REPLACED = "\N{REPLACEMENT CHARACTER}"
"""What restic writes for bytes of names that are not UTF-8. A file cannot be found by such a name."""
SAME_SECONDS = 0.001
"""Times of restic have nanoseconds, and those of messages do not."""
MOST_NAMES = 10
FORMATS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink"}
KINDS: dict[str, wire_routes.EntryKind] = {"file": "file", "dir": "folder", "symlink": "link"}


def snapshot_message(snapshot: Snapshot) -> wire_routes.Snapshot:
    """Return a snapshot as the page reads it."""
    return {"id": snapshot.id, "time": snapshot.time, "message": snapshot.message}


def entry_message(folder: Path, entry: Entry) -> wire_routes.SnapshotEntry:
    """Return an entry of a folder, which is or was at ``folder``."""
    restorable = REPLACED not in entry.name
    return {
        "name": entry.name,
        "kind": KINDS.get(entry.kind, "other"),
        "size": entry.size,
        "modified": entry.modified,
        # With replaced bytes, the name of what may be in the home now is not known.
        "now": _now(folder / entry.name, entry) if restorable else "same",
        "restorable": restorable,
    }


def version_messages(place: Path, versions: Sequence[Version]) -> list[wire_routes.SnapshotVersion]:
    """Return the versions of a file or folder, newest first. A version that has not changed equals the one before."""
    return [
        {
            **snapshot_message(one),
            "kind": KINDS.get(one.kind, "other"),
            "size": one.size,
            "modified": one.modified,
            "changed": before is None or _content(one) != _content(before),
            "now": _now(place, one),
        }
        for one, before in zip_longest(versions, versions[1:])
    ]


def unread_notices(taken: TakenSnapshot) -> tuple[str, ...]:
    """Return a text for the user if files are not in the snapshot because they could not be read."""
    if not taken.unread:
        return ()
    names = ", ".join(printable(name) for name in taken.unread[:MOST_NAMES])
    rest = f" and {len(taken.unread) - MOST_NAMES:,} more" if len(taken.unread) > MOST_NAMES else ""
    return (f"Not in the snapshot, because they could not be read: {names}{rest}",)


def _content(version: Version) -> tuple[str, int, float]:
    return version.kind, version.size, version.modified


def _now(place: Path, then: Entry | Version) -> wire_routes.Now:
    """Return how what is at a path of the home differs from an entry of a snapshot, by size and time of change."""
    try:
        found = place.lstat()
    except (OSError, ValueError):
        return "missing"
    kind, later = FORMATS.get(stat.S_IFMT(found.st_mode), ""), found.st_mtime - then.modified
    same_size = kind != "file" or found.st_size == then.size
    if kind == then.kind and (kind == "dir" or (abs(later) < SAME_SECONDS and same_size)):
        return "same"
    return "newer" if later > SAME_SECONDS else "different"
