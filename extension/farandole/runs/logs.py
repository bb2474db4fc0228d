"""Keeps the last output of each rank in the driver."""

from __future__ import annotations

from collections import deque

KEPT_CHARACTERS = 1_000_000


class RankLogs:
    """Keeps about the last million characters of each rank's output."""

    def __init__(self) -> None:
        self._texts: dict[int, deque[str]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, rank: int, text: str) -> None:
        """Add output of a rank."""
        texts = self._texts.setdefault(rank, deque())
        texts.append(text)
        self._sizes[rank] = self._sizes.get(rank, 0) + len(text)
        while self._sizes[rank] > KEPT_CHARACTERS and len(texts) > 1:
            self._sizes[rank] -= len(texts.popleft())

    def tail(self, rank: int, lines: int) -> str:
        """Return the last lines of a rank's output as one text."""
        # A copy, because the event loop's thread may append at the same time.
        text = "".join(tuple(self._texts.get(rank, ())))
        return "\n".join(text.splitlines()[-lines:])
