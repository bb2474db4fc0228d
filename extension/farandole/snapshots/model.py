"""What is known of snapshots, of a path in them, and of the differences between two of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from farandole.exceptions import UsageError
from farandole.times import parsed_time

MESSAGE = "message="
"""The beginning of the tag with the user's message. Automatic snapshots have none."""
TIME = "time="
"""The beginning of the tag with the time in seconds since the epoch.

restic records its own time and does not print it, and reading it from the repository would take half a second."""
MOST_CHARACTERS = 200
NUMBER = re.compile(r"\d{1,11}\.\d{6}")
SHORT = 8
"""The number of characters of an id that is shown."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot of the home.

    Attributes:
        id: the id that restic gave it, with 64 characters. restic prints the first 8 for a new snapshot.
        time: when it was taken, in seconds since the epoch.
        message: the user's message, or an empty string.
    """

    id: str
    time: float
    message: str = ""

    @property
    def short_id(self) -> str:
        """The first characters of the id."""
        return self.id[:SHORT]


@dataclass(frozen=True, kw_only=True)
class TakenSnapshot(Snapshot):
    """A snapshot that was just taken.

    Attributes:
        files: the number of files in it.
        size: their bytes.
        added: the bytes that were stored, because no earlier snapshot had them.
        unread: paths in the home that are not in it, because they could not be read.
        left_out: patterns of the files that are left out by choice.
    """

    files: int
    size: int
    added: int
    unread: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Version(Snapshot):
    """A snapshot that has a certain file or folder.

    Attributes:
        kind: file, dir, symlink, fifo, dev or chardev, as restic says.
        size: the bytes of a file, otherwise 0.
        modified: when the file or folder was last changed, in seconds since the epoch.
    """

    kind: str
    size: int
    modified: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """A difference between two snapshots.

    Attributes:
        kind: + added, - removed, M content changed, T type changed, as restic says.
        path: the path in the home. The path of a folder ends with a slash.
    """

    kind: str
    path: str


def parse_snapshot(record: Mapping[str, Any]) -> Snapshot:
    """Return a snapshot from restic's record of it."""
    tags = record.get("tags") or ()
    return Snapshot(
        id=record["id"],
        time=_number(_tagged(tags, TIME)) or seconds(record["time"]),
        message=unquote(_tagged(tags, MESSAGE)),
    )


def _tagged(tags: Sequence[str], beginning: str) -> str:
    """Return the rest of the first tag with this beginning, or an empty string."""
    return next((tag.removeprefix(beginning) for tag in tags if tag.startswith(beginning)), "")


def _number(text: str) -> float | None:
    """Return a positive number of seconds, or None if the text is not one."""
    return float(text) if NUMBER.fullmatch(text) else None


def seconds(text: str) -> float:
    """Return restic's time, which has nanoseconds, in seconds since the epoch, or 0 if it is not valid."""
    return parsed_time(text) or 0.0


def tags_of(message: str, moment: float) -> list[str]:
    """Return the tags for a message and a time. Raises UsageError if the message is too long.

    restic separates tags with commas, and removes spaces around them.
    """
    if len(message) > MOST_CHARACTERS:
        raise UsageError(f"the message has {len(message)} characters; use at most {MOST_CHARACTERS}")
    tags = [MESSAGE + quote(message, safe="", errors="replace")] if message else []
    return [f"{TIME}{moment:.6f}", *tags]
