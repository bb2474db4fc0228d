"""Applies the control characters of progress bars to output, as a terminal does.

A progress bar rewrites its line: it writes a carriage return before each frame. Nested bars move down with a line break
and up again with ``ESC [ A``. Only the last frame is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SETTLE_SECONDS = 0.3
"""How many seconds the cursor must be below a rewritten line before the line is complete. Nested bars move the cursor
down for each frame, and the frame may arrive in several messages."""
MOST_ROWS = 32
"""The maximum number of lines that are kept because they may be rewritten."""
MOST_CHARACTERS = 1_000_000
_CONTROLS = re.compile(r"(\r|\n|\x1b\[\d*A)")


@dataclass(slots=True)
class _Row:
    text: str = ""
    returned: bool = False
    """Whether the cursor is at the beginning, so that the next text replaces this text."""
    rewritten: bool = False
    passed: float = 0.0
    """The time at which the cursor last moved down from this row."""


class TerminalLines:
    """The lines at the end of a stream that the stream may still rewrite. `dropped` counts characters beyond ``most``.

    - A line that was not rewritten is complete after its line break.
    - A rewritten line is complete if a line below it is complete, or `SETTLE_SECONDS` after its line break.
    """

    def __init__(self, *, most: int = MOST_CHARACTERS) -> None:
        self.dropped = 0
        self._most = most
        self._rows = [_Row()]
        self._cursor = 0

    def add(self, text: str, now: float = 0.0) -> list[str]:
        """Add text that arrived at the time ``now``, in seconds. Return the lines that are complete now."""
        if self._is_plain() and "\r" not in text and "\x1b" not in text:
            # This is the same as below for a single plain line, and much faster.
            *lines, rest = (self._rows[0].text + text).split("\n")
            self._rows[0].text = ""
            self._write(rest)
            return lines
        for part in _CONTROLS.split(text):
            if part == "\n":
                self._move_down(now)
            elif part == "\r":
                self._rows[self._cursor].returned = True
            elif part.startswith("\x1b[") and part.endswith("A"):
                self._cursor = max(0, self._cursor - int(part[2:-1] or 1))
            elif part:
                self._write(part)
        return self._pop(self._count_complete(None))

    def settle(self, now: float) -> list[str]:
        """Return the rewritten lines that are complete at the time ``now``."""
        return self._pop(self._count_complete(now))

    def flush(self) -> list[str]:
        """Return all lines, and begin again."""
        lines = self._pop(len(self._rows))
        return lines[:-1] if lines and not lines[-1] else lines

    @property
    def live(self) -> list[str]:
        """The rewritten lines that are not complete."""
        return [row.text.rstrip() for row in self._rows if row.rewritten and row.text.strip()]

    @property
    def open(self) -> list[str]:
        """All lines that are not complete."""
        return [row.text for row in self._rows if row.text and not _is_cleared(row)]

    def _is_plain(self) -> bool:
        row = self._rows[0]
        return len(self._rows) == 1 and not (row.returned or row.rewritten)

    def _write(self, text: str) -> None:
        row = self._rows[self._cursor]
        if row.returned:
            row.text, row.returned, row.rewritten = "", False, True
        room = self._most - len(row.text)
        self.dropped += max(0, len(text) - room)
        row.text += text[:room]

    def _move_down(self, now: float) -> None:
        self._rows[self._cursor].passed = now
        self._cursor += 1
        if self._cursor == len(self._rows):
            self._rows.append(_Row())
        else:
            self._rows[self._cursor].returned = True

    def _count_complete(self, now: float | None) -> int:
        """Return how many lines at the beginning are complete. Without a time, rewritten lines do not settle."""
        count = max(0, min(self._cursor, len(self._rows) - MOST_ROWS))
        for number, row in enumerate(self._rows[: self._cursor]):
            # An empty row between rewritten rows may belong to a progress bar that has not started.
            plain = not row.rewritten and (row.text or number == count)
            if plain or (row.rewritten and now is not None and now - row.passed >= SETTLE_SECONDS):
                count = number + 1
        return count

    def _pop(self, count: int) -> list[str]:
        rows, self._rows = self._rows[:count], self._rows[count:] or [_Row()]
        self._cursor = max(0, self._cursor - count)
        return [row.text.rstrip() if row.rewritten else row.text for row in rows if not _is_cleared(row)]


def _is_cleared(row: _Row) -> bool:
    """Return whether a progress bar has removed itself by writing spaces over its line."""
    return row.rewritten and not row.text.strip()
