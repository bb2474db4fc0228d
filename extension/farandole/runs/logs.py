"""Keeps the latest output of each rank in the memory of the driver, and the times of output until they are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import PurePath

from farandole.runs.terminal import TerminalLines

KEPT_CHARACTERS = 1_000_000
RESOLUTION_SECONDS = 1.0
"""The shortest time between two times that are recorded for a log."""


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


class OutputTimes:
    """Collects when the ranks of a run printed their output, until this is written to files beside the logs.

    Each line of ``times/rank-<n>.jsonl`` is a pair ``[offset, time]``: the rank printed its output from byte ``offset``
    of its log at ``time``, in seconds since the epoch. The output up to the next pair was printed within the next
    `RESOLUTION_SECONDS`.
    """

    def __init__(self) -> None:
        self._added: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._pairs: dict[str, list[tuple[int, float]]] = {}

    def add(self, log: str, size: int, printed: float) -> None:
        """Count ``size`` bytes of output, which a rank printed at the time ``printed``."""
        offset = self._added.get(log, 0)
        self._added[log] = offset + size
        # The clock may also be set back.
        if not 0 <= printed - self._last.get(log, 0.0) < RESOLUTION_SECONDS:
            self._last[log] = printed
            self._pairs.setdefault(log, []).append((offset, printed))

    def drop(self, log: str, size: int) -> None:
        """Take back ``size`` bytes of output that are not written, and the times that `take` has not returned."""
        self._added[log] -= size
        self._pairs.pop(log, None)

    def take(self, sizes: Mapping[str, int]) -> dict[str, str]:
        """Return the lines to write, by file name. ``sizes`` has the size of each log before the first output."""
        pairs, self._pairs = self._pairs, {}
        return {times_of(log): _lines(sizes.get(log, 0), pairs[log]) for log in pairs}


def times_of(log: str) -> str:
    """Return the name of the file with the times of a log."""
    return f"times/{PurePath(log).stem}.jsonl"


def _lines(begin: int, pairs: list[tuple[int, float]]) -> str:
    return "".join(f"[{begin + offset},{printed:.3f}]\n" for offset, printed in pairs)
