"""Refuses a change of a run if someone else has changed the same text since the page has shown it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farandole.exceptions import UsageError
from farandole.runs.model import RunInfo
from farandole.runs.notes import RunNotes
from farandole.server.panel.problems import RefusedError

SHOWN = 300
"""Maximum number of characters of the present text in the message."""


def parts_of(edit: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the new values of an edit, and the values before the edit, as far as the page names them."""
    values = {name: value for name, value in edit.items() if name != "before"}
    before = edit.get("before") or {}
    if not isinstance(before, dict):
        raise UsageError("`before` must be an object with the values that the change replaces, or null")
    return values, before


def check_unchanged(info: RunInfo, values: Mapping[str, Any], before: Mapping[str, Any], notes: RunNotes) -> None:
    """Raise RefusedError if a text that is to be changed is neither the one before the edit nor the new one."""
    name = notes.name or info.original_name or info.name
    present: dict[str, Any] = {"name": name, "tags": list(notes.tags), "notes": notes.notes}
    for key in [key for key in present if before.get(key) is not None and values.get(key) is not None]:
        if present[key] not in (before[key], values[key]):
            text = ", ".join(present[key]) if key == "tags" else present[key]
            verb = "was" if key == "name" else "were"
            raise RefusedError(
                "changed",
                f"the {key} of run {info.id} {verb} changed elsewhere in the meantime, to {text[:SHOWN]!r}; your text "
                "is not saved: save it again to replace this, or discard it",
            )
