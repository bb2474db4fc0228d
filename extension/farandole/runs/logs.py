"""Keeps the latest output of each rank in the memory of the driver."""

from __future__ import annotations

from collections import deque

from farandole.runs.terminal import TerminalLines

KEPT_CHARACTERS = 1_000_000


class _RankLog:
    """The complete lines of one rank, in pieces, and the lines that the rank may still rewrite."""

    def __init__(self) -> None:
        self.open = TerminalLines()
        self.pieces: deque[str] = deque()
        self._size = 0

    def add(self, text: str) -> None:
        if lines := self.open.add(text):
            self.pieces.append("\n".join(lines) + "\n")
            self._size += len(self.pieces[-1])
        while self._size > KEPT_CHARACTERS and len(self.pieces) > 1:
            self._size -= len(self.pieces.popleft())


class RankLogs:
    """Keeps about the last million characters of each rank's output, without the earlier frames of progress bars."""

    def __init__(self) -> None:
        self._logs: dict[int, _RankLog] = {}

    def add(self, rank: int, text: str) -> None:
        """Append output from a rank, and drop the rank's oldest output if there is too much."""
        self._logs.setdefault(rank, _RankLog()).add(text)

    def tail(self, rank: int, lines: int) -> str:
        """Return the last ``lines`` lines of a rank's output, joined by line breaks."""
        if (log := self._logs.get(rank)) is None:
            return ""
        # The deque is copied first, because the event loop's thread may append to it at the same time.
        complete = "".join(tuple(log.pieces)).splitlines()
        return "\n".join([*complete, *log.open.open][-lines:])
