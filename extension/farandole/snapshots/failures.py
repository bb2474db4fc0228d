"""Explains to users what restic reports when it fails."""

from __future__ import annotations

import re
from collections.abc import Sequence

from farandole.exceptions import SnapshotError
from farandole.reading import printable
from farandole.snapshots.choice import FILE

LOCKED = r"repository is already locked"
FULL = r"response.*\b507\b|(Save\(|unable to (save|create lock)).*no space left on device"
NO_ROOM = r"no space left on device|disk quota exceeded"
REFUSED = r"response.*\b(401|403)\b"
AWAY = r"connection (refused|reset)|no such host|[tT]imeout|response.*\b50[0234]\b"
DAMAGED = (
    r"wrong password or no key found|unable to open config file|Load\(.*(no such file|does not exist|response.*\b404\b)"
    r"|ciphertext verification failed|invalid data returned|not found in (repository|index)|unable to load index"
)
PATTERN = r"invalid pattern"
EMPTY = r"snapshot is empty"
"""What restic's messages contain, by what has happened."""
PERMANENT = re.compile(f"{LOCKED}|{FULL}|{NO_ROOM}|{REFUSED}|{DAMAGED}")
"""Problems that restic would try to overcome for a quarter of an hour, in vain."""


def restic_error(lines: Sequence[str]) -> SnapshotError:
    """Return the error for what restic reported."""
    error = SnapshotError(restic_failure(lines))
    error.add_note("\n".join(lines))
    return error


def restic_failure(lines: Sequence[str]) -> str:
    """Return what the lines that restic reported mean to the user."""
    text = "\n".join(lines)
    if re.search(LOCKED, text):
        return (
            "The repository of your snapshots is locked, because the hub removes old snapshots at the moment. Try "
            "again in a few minutes; if it stays locked for hours, tell the hub's administrator."
        )
    if re.search(FULL, text):
        return (
            "The repository of your snapshots is full, so nothing was added. Leave out large folders with "
            f"~/{FILE}, or ask the hub's administrator for more room. The snapshots that exist can be restored."
        )
    if re.search(NO_ROOM, text):
        return (
            "There is no room left on the disk. Remove files that you do not need, or restore to a folder on another "
            "disk."
        )
    if re.search(REFUSED, text):
        return (
            "The hub no longer lets this server use snapshots. Restart your notebook server; if this remains, ask the "
            "hub's administrator."
        )
    if re.search(AWAY, text):
        return (
            "The hub does not answer; it may be restarting. Try again in a minute. The snapshots that exist are "
            "unharmed."
        )
    return other_failure(lines)


def other_failure(lines: Sequence[str]) -> str:
    """Return what the lines mean if neither the hub nor the disk is the reason."""
    text = "\n".join(lines)
    if re.search(PATTERN, text):
        return f"restic does not accept a pattern in ~/{FILE}: {printable(lines[-1])}. Correct it, and try again."
    if re.search(EMPTY, text):
        return f"Your home has no files, except those that snapshots leave out (~/{FILE} changes this)."
    if re.search(DAMAGED, text):
        return (
            "The repository of your snapshots is damaged: a part of this snapshot is missing or has changed. Try "
            "another snapshot, and tell the hub's administrator, who can repair the repository."
        )
    return f"restic failed: {_summary(lines)}. Try again; if this remains, tell the hub's administrator."


def _summary(lines: Sequence[str]) -> str:
    """Return the first line that says why restic failed."""
    fatal = [line for line in lines if line.startswith("Fatal: ")]
    return printable((fatal or list(lines) or ["it reported no reason"])[0].removeprefix("Fatal: ").rstrip("."))
