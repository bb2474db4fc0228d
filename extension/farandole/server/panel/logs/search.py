"""Searches the logs of a run for a text, part by part, because a log or one of its lines may have gigabytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader

from farandole.exceptions import RunUnreadableError, UsageError
from farandole.reading import open_regular, reason
from farandole.runs.model import RunInfo
from farandole.runs.positions import rank_files
from farandole.server.panel import wire_routes
from farandole.server.panel.logs.moments import Moments
from farandole.server.panel.logs.window import Window

STEP_BYTES = 2**16
"""How many bytes are searched at once. A step is short, because the server answers no other request in the meantime."""
AROUND_BYTES = 2**14
"""How many bytes before and after a step are in memory. A match, its escape sequences and its text have to fit."""
MOST_TEXT = 500
"""The largest number of characters of a match's line that are sent, and of a text to search for."""


@dataclass(frozen=True)
class Found:
    """The first match in a line. ``text`` is the part of the line around it."""

    line: int
    offset: int
    text: str


class Needle:
    """A text to search for. Unless ``case`` is true, the case of letters does not matter."""

    def __init__(self, text: str, *, case: bool) -> None:
        """Raise UsageError if the text is empty or too long."""
        if not text.strip():
            raise UsageError("text must not be empty; give the text to search the logs for")
        if len(text) > MOST_TEXT:
            raise UsageError(f"text must have at most {MOST_TEXT} characters, not {len(text):,}")
        self.case = case
        self._text = text if case else text.casefold()

    def matches(self, window: Window, place: int) -> Iterator[tuple[int, int]]:
        """Yield the indices at which the first match in each line at or after a place begins and ends."""
        text = window.searched
        # These operations take linear time, whereas a regular expression may take the product of both lengths.
        begin = window.index(place) if self._text in text else -1
        while begin >= 0 and (start := text.find(self._text, begin)) >= 0:
            yield start, start + len(self._text)
            begin = text.find("\n", start + len(self._text))


def search(
    info: RunInfo, ranks: Sequence[int] | None, needle: Needle, limit: int, stopped: threading.Event
) -> wire_routes.LogMatches:
    """Return at most ``limit`` lines of the logs of ``ranks``, or of all ranks, in which ``needle`` occurs.

    The search ends early as soon as ``stopped`` is set. Raises RunUnreadableError if a log cannot be read.
    """
    matches: list[wire_routes.LogMatch] = []
    for match in _matches(info, ranks, needle, stopped):
        if len(matches) == limit:
            return {"id": info.id, "matches": matches, "complete": False}
        matches.append(match)
    return {"id": info.id, "matches": matches, "complete": not stopped.is_set()}


def _matches(
    info: RunInfo, ranks: Sequence[int] | None, needle: Needle, stopped: threading.Event
) -> Iterator[wire_routes.LogMatch]:
    for rank, log in sorted(rank_files(info.folder, "logs", ".log")):
        if ranks is not None and rank not in ranks:
            continue
        times = Moments(info.folder, log)
        try:
            with open_regular(info.folder, log) as file:
                for found in lines_with(file, needle, stopped):
                    line, offset, text = found.line, found.offset, found.text
                    yield {"rank": rank, "line": line, "offset": offset, "time": times.of(offset), "text": text}
        except (OSError, ValueError) as exc:
            message = f"the log of rank {rank} of run {info.id!r} cannot be read: {reason(exc)}"
            raise RunUnreadableError(message) from exc


def lines_with(file: BufferedReader, needle: Needle, stopped: threading.Event) -> Iterator[Found]:
    """Yield the first match in each line of a file. The lines count from 1.

    ``data`` consists of ``AROUND_BYTES`` that have been searched, those to search, and ``AROUND_BYTES`` that follow, so
    that each match is complete and has its text around it.
    """
    data, base, begin, line, last = b"", 0, 0, 1, 0
    while not stopped.is_set():
        block = file.read(STEP_BYTES)
        data += block
        window = Window(data, case=needle.case)
        end = len(data) - AROUND_BYTES if block else len(data)
        counted = begin
        for start, stop in needle.matches(window, begin):
            place = window.place(start)
            if place >= end or stopped.is_set():
                break
            line, counted = line + data.count(b"\n", counted, place), place
            if line > last:
                last = line
                yield Found(line, base + place, window.line(start, stop)[:MOST_TEXT])
        if not block:
            return
        end = max(end, begin)
        line += data.count(b"\n", counted, end)
        cut = max(0, end - AROUND_BYTES)
        data, base, begin = data[cut:], base + cut, end - cut
