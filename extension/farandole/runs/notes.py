"""Reads and writes ``notes.json`` in a run's folder: the name, tags and notes that the user has given to the run.

They have a file of their own because the driver replaces ``run.json`` during the run.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from farandole.exceptions import UsageError
from farandole.reading import SMALL_JSON_BYTES, check_types, printable, read_json
from farandole.runs.lifecycle.lock import changing
from farandole.runs.model import RunInfo
from farandole.runs.writer import strict_json, write_atomically

NOTES = "notes.json"
LONGEST_NAME = 200
MOST_TAGS = 20
LONGEST_TAG = 50
LONGEST_STORED_NOTES = 10_000
NOT_IN_NAMES = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode categories of control characters, of halves of characters, and of separators of lines and paragraphs."""


@dataclass(frozen=True, kw_only=True)
class RunNotes:
    """What the user has written about a run. If ``name`` is empty, the run keeps its original name.

    Spaces around the name and the tags are removed, and repeated tags. Raises UsageError if a text is too long, if the
    name or a tag contains control characters, or if there are too many tags.
    """

    name: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""

    def __post_init__(self) -> None:
        tags = tuple(dict.fromkeys(tag for one in self.tags if (tag := one.strip())))
        # A frozen dataclass can normalize its values only in this way.
        object.__setattr__(self, "name", self.name.strip())
        object.__setattr__(self, "tags", tags)
        _check_text("the name", self.name, LONGEST_NAME)
        if len(tags) > MOST_TAGS:
            raise UsageError(f"a run may have at most {MOST_TAGS} tags, not {len(tags):,}; remove some of them")
        for tag in tags:
            _check_text("a tag", tag, LONGEST_TAG)
        _check_length("the notes", self.notes, LONGEST_STORED_NOTES)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> RunNotes:
        """Make notes from untrusted JSON. Ignore unknown keys. Raises ValueError if a value is invalid."""
        known = {name: record[name] for name in cls.__dataclass_fields__ if name in record}
        check_types(known, {"tags": "texts"}, "the notes of a run")
        return cls(**{**known, "tags": tuple(known.get("tags", ()))})

    def changed(self, edit: Mapping[str, Any]) -> RunNotes:
        """Return these notes with the values of an edit, in which None leaves a value as it is. Raises UsageError."""
        if unknown := sorted(edit.keys() - vars(self).keys()):
            raise UsageError(f"a change of a run has only name, tags and notes, not {printable(unknown[0][:100])!r}")
        given = {name: value for name, value in edit.items() if value is not None}
        try:
            return self.from_json({**vars(self), **given})
        except ValueError as exc:
            raise UsageError(str(exc)) from exc


Check: TypeAlias = Callable[[RunNotes], None]


def _check_text(what: str, text: str, most: int) -> None:
    """Raise UsageError if a name or a tag is too long or contains control characters."""
    _check_length(what, text, most)
    if any(unicodedata.category(character) in NOT_IN_NAMES for character in text):
        raise UsageError(f"{what} must not contain control characters or line breaks; remove them")


def _check_length(what: str, text: str, most: int) -> None:
    """Raise UsageError if a text of the user is too long."""
    if len(text) > most:
        raise UsageError(f"{what} may have at most {most:,} characters, not {len(text):,}; shorten it")


def read_notes(folder: Path) -> RunNotes:
    """Return the notes in a run's folder. Raises OSError or ValueError if the file is not readable or is damaged."""
    if not os.path.lexists(folder / NOTES):
        return RunNotes()
    return RunNotes.from_json(read_json(folder, NOTES, SMALL_JSON_BYTES))


def change_notes(folder: Path, edit: Mapping[str, Any], check: Check = lambda _: None) -> RunNotes:
    """Change the notes in a run's folder and return them. A damaged file is kept as ``notes.json.old``.

    ``check`` is called with the notes before the change and may raise an error. Other servers that share the run store
    change nothing in the meantime. An edit without a value writes nothing.

    Raises UsageError if the edit is invalid, and OSError if the file cannot be read or written.
    """
    with changing(folder.parent):
        try:
            before, damaged = read_notes(folder), False
        except ValueError:
            before, damaged = RunNotes(), True
        notes = before.changed(edit)
        check(before)
        if notes != before or (damaged and any(value is not None for value in edit.values())):
            _write(folder / NOTES, notes, damaged=damaged)
        return notes


def _write(path: Path, notes: RunNotes, *, damaged: bool) -> None:
    if damaged:
        path.replace(path.with_name(f"{NOTES}.old"))
    # On a volume without locks, several servers may write at the same time.
    write_atomically(path, (strict_json(vars(notes), indent=2) + "\n").encode(), durable=True, shared=True)


def annotated(info: RunInfo) -> RunInfo:
    """Return a run's info with the user's name, tags and notes. A file that cannot be read is ignored."""
    with suppress(OSError, ValueError):
        notes = read_notes(info.folder)
        named = replace(info, name=notes.name, original_name=info.name) if notes.name else info
        return replace(named, tags=notes.tags, notes=notes.notes)
    return info
