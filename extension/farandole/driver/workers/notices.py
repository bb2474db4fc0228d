"""The notices that a hub's operators leave for a user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from farandole.reading import check_types

KINDS = {"by": "text", "at": "time", "text": "text", "servers": "texts"}


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice from ``by``, left at a time in seconds since the epoch.

    If ``servers`` has names, ``text`` is the reason why these servers were stopped. The name of the notebook server is
    empty.
    """

    by: str
    at: float
    text: str
    servers: tuple[str, ...]


def parsed(answer: Any) -> list[Notice]:
    """Return the notices in a hub's answer, and leave out everything else."""
    return list(_parsed(answer)) if isinstance(answer, list) else []


def _parsed(answer: list[Any]) -> Iterator[Notice]:
    for entry in answer:
        try:
            known = {name: entry[name] for name in KINDS}
            check_types(known, KINDS, "a notice")
        except (TypeError, KeyError, ValueError):
            continue
        yield Notice(**{**known, "servers": tuple(known["servers"])})
