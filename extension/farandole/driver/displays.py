"""Output that a rank replaces later: displays with an id, and output that is cleared with `clear_output`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from farandole.runs.terminal import TerminalLines

UPDATE_SECONDS = 0.3
"""The shortest interval, in seconds, between two updates of a display. Only the latest content is shown."""
PART_CHARACTERS = 10_000
"""The number of characters after which the text of a screen continues in another display, because each update sends the
whole content of a display."""

Bundle: TypeAlias = dict[str, Any]
Change: TypeAlias = tuple[str, Bundle | None]
BLANK: Bundle = {"text/plain": ""}


@dataclass
class _Display:
    """The state of a display. It is `queued` until it is `placed`, which is when it is shown for the first time."""

    rank: int
    bundle: Bundle
    size: int = 0
    queued: bool = False
    placed: bool = False
    cleared: bool = False


class Displays:
    """The current content of each display, by key. The size of a display is that of its largest content so far."""

    def __init__(self) -> None:
        self._displays: dict[str, _Display] = {}
        self._changed: dict[str, None] = {}
        self._updated = float("-inf")

    def growth(self, key: str, bundle: Bundle | None) -> int:
        """Return by how many characters a new content would exceed the size of a display."""
        known = self._displays.get(key)
        return 0 if bundle is None else max(0, len(json.dumps(bundle)) - (known.size if known else 0))

    def set(self, key: str, rank: int, bundle: Bundle | None) -> bool:
        """Set the content of a display, or clear it if ``bundle`` is None. Return True if the display must be queued.

        A display that was cleared is empty until a rank displays it again.
        """
        growth = self.growth(key, bundle)
        known = self._displays.setdefault(key, _Display(rank, BLANK))
        known.bundle, known.size, known.cleared = bundle or BLANK, known.size + growth, bundle is None
        if known.queued or known.placed:
            self._changed[key] = None
            return False
        known.queued = bundle is not None
        return known.queued

    def is_cleared(self, key: str) -> bool:
        """Return whether a display has been cleared. Later updates of a cleared display have no effect."""
        return key in self._displays and self._displays[key].cleared

    def keys_of(self, rank: int) -> list[str]:
        """Return the keys of a rank's displays that were not cleared."""
        return [key for key, display in self._displays.items() if display.rank == rank and not display.cleared]

    def place(self, key: str) -> Bundle:
        """Return the current content of a display whose turn it is to be shown for the first time."""
        self._displays[key].placed = True
        self._changed.pop(key, None)
        return self._displays[key].bundle

    def drop(self, key: str) -> None:
        """Remove a display from the queue."""
        self._displays[key].queued = False

    def is_due(self, now: float) -> bool:
        """Return whether displays may be updated at the time ``now``, in seconds. If so, a new interval begins."""
        if now - self._updated < UPDATE_SECONDS:
            return False
        self._updated = now
        return True

    def take(self) -> Iterator[tuple[str, int, Bundle]]:
        """Yield the key, rank and content of each display that is shown and has changed."""
        for key in [key for key in self._changed if self._displays[key].placed]:
            del self._changed[key]
            yield key, self._displays[key].rank, self._displays[key].bundle


class Screen:
    """The output of a rank since the rank last cleared it, as a series of displays that are used again after that.

    All methods return the displays to change, as keys and contents. A content of None clears the display.
    """

    def __init__(self, name: str, others: Iterable[str] = ()) -> None:
        """Make a screen. ``others`` are the keys of displays with an id that belong to the output to clear."""
        self._name = name
        self._others = list(others)
        self._used = 0
        self._text: _Text | None = None
        self._clear_first = False

    def clear(self, *, wait: bool) -> list[Change]:
        """Clear the screen, with ``wait`` not before the next output."""
        self._clear_first = wait
        return [] if wait else self._clear()

    def add_text(self, text: str) -> list[Change]:
        """Add text of a stream."""
        cleared = self._clear_if_waiting()
        if self._text is None or self._text.size > PART_CHARACTERS:
            self._text = _Text(self._next_key())
        self._text.add(text)
        return [*cleared, (self._text.key, {"text/plain": self._text.shown})]

    def add_bundle(self, bundle: Bundle) -> list[Change]:
        """Add rich output."""
        cleared = self._clear_if_waiting()
        self._text = None
        return [*cleared, (self._next_key(), bundle)]

    def add_display(self, key: str, bundle: Bundle) -> list[Change]:
        """Add or change a display with an id, which later displays cannot replace."""
        cleared = self._clear_if_waiting()
        self._text = None
        if key not in self._others:
            self._others.append(key)
        return [*cleared, (key, bundle)]

    def _clear_if_waiting(self) -> list[Change]:
        waiting, self._clear_first = self._clear_first, False
        return self._clear() if waiting else []

    def _clear(self) -> list[Change]:
        cleared: list[Change] = [(key, None) for key in (*map(self._key, range(self._used)), *self._others)]
        self._used, self._text, self._others = 0, None, []
        return cleared

    def _next_key(self) -> str:
        self._used += 1
        return self._key(self._used - 1)

    def _key(self, place: int) -> str:
        return f"{self._name}-{place}"


class _Text:
    """Consecutive text of both streams on a screen."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._lines: list[str] = []
        self._open = TerminalLines()

    def add(self, text: str) -> None:
        self._lines += self._open.add(text)

    @property
    def shown(self) -> str:
        return "\n".join([*self._lines, *self._open.open])

    @property
    def size(self) -> int:
        return len(self.shown)
