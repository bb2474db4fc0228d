"""Keeps the latest output of each rank in the memory of the driver."""

from __future__ import annotations

from collections import deque

KEPT_CHARACTERS = 1_000_000


class RankLogs:
    """Keeps about the last million characters of each rank's output."""

    def __init__(self) -> None:
        self._texts: dict[int, deque[str]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, rank: int, text: str) -> None:
        """Append output from a rank, and drop the rank's oldest output if there is too much."""
        texts = self._texts.setdefault(rank, deque())
        texts.append(text)
        self._sizes[rank] = self._sizes.get(rank, 0) + len(text)
        while self._sizes[rank] > KEPT_CHARACTERS and len(texts) > 1:
            self._sizes[rank] -= len(texts.popleft())

    def tail(self, rank: int, lines: int) -> str:
        """Return the last ``lines`` lines of a rank's output, joined by line breaks."""
        # The deque is copied first, because the event loop's thread may append to it at the same time.
        text = "".join(tuple(self._texts.get(rank, ())))
        return "\n".join(text.splitlines()[-lines:])
