"""Searches the logs of a run for a text, block by block, because a log or one of its lines may have gigabytes."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader

from farandole.exceptions import RunUnreadableError, UsageError
from farandole.reading import open_regular, reason
from farandole.runs.model import RunInfo
from farandole.runs.positions import rank_files
from farandole.server.panel import wire_runs
from farandole.server.panel.logs.moments import Moments

BLOCK_BYTES = 2**20
AROUND_BYTES = 2**14
"""How many bytes before and after a match are in memory. A match, its escape sequences and its text have to fit."""
MOST_TEXT = 500
"""The largest number of characters of a match's line that are sent, and of a text to search for."""
BEFORE_BYTES = 200
"""How many bytes before a match are sent if its line is long."""
ESCAPES = rb"(?:\x1b\[[0-?]*[ -/]*[@-~])*"
"""Matches the escape sequences that change colours in the middle of a text."""
ESCAPE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]")


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
        forms = [_forms(one, case=case) for one in text]
        self._case = case
        self._plain = re.compile(b"".join(forms))
        self._coloured = re.compile(ESCAPES.join(forms))

    def matches(self, data: bytes, begin: int) -> Iterator[tuple[int, int]]:
        """Yield the first match in each line from ``begin`` on, as the positions of its first and its last byte."""
        pattern = self._coloured if b"\x1b" in data else self._plain
        text = data if self._case else data.lower()
        while (match := pattern.search(text, begin)) is not None:
            yield match.start(), match.end()
            begin = data.find(b"\n", match.end())
            if begin < 0:
                return


def search(
    info: RunInfo, ranks: Sequence[int] | None, needle: Needle, limit: int, stopped: threading.Event
) -> wire_runs.LogMatches:
    """Return at most ``limit`` lines of the logs of ``ranks``, or of all ranks, in which ``needle`` occurs.

    The search ends early as soon as ``stopped`` is set. Raises RunUnreadableError if a log cannot be read.
    """
    matches: list[wire_runs.LogMatch] = []
    for match in _matches(info, ranks, needle, stopped):
        if len(matches) == limit:
            return {"id": info.id, "matches": matches, "complete": False}
        matches.append(match)
    return {"id": info.id, "matches": matches, "complete": not stopped.is_set()}


def _matches(
    info: RunInfo, ranks: Sequence[int] | None, needle: Needle, stopped: threading.Event
) -> Iterator[wire_runs.LogMatch]:
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

    ``data`` is a window on the file: ``AROUND_BYTES`` that have been searched, those to search, and ``AROUND_BYTES``
    that follow, so that each match is complete and has its text around it.
    """
    data, base, begin, line, last = b"", 0, 0, 1, 0
    while not stopped.is_set():
        block = file.read(BLOCK_BYTES)
        data += block
        end = len(data) - AROUND_BYTES if block else len(data)
        counted = begin
        for start, stop in needle.matches(data, begin):
            if start >= end or stopped.is_set():
                break
            line, counted = line + data.count(b"\n", counted, start), start
            if line > last:
                last = line
                yield Found(line, base + start, _text(data, start, stop))
        if not block:
            return
        end = max(end, begin)
        line += data.count(b"\n", counted, end)
        cut = max(0, end - AROUND_BYTES)
        data, base, begin = data[cut:], base + cut, end - cut


def _text(data: bytes, start: int, stop: int) -> str:
    """Return the line of a match without colours, or the part of a long line that begins shortly before the match."""
    begin = max(data.rfind(b"\n", 0, start) + 1, start - BEFORE_BYTES)
    end = data.find(b"\n", stop)
    text = data[begin : end if end >= 0 else None][:AROUND_BYTES].decode("utf-8", "ignore")
    return ESCAPE.sub("", text).rstrip("\r")[:MOST_TEXT]


def _forms(character: str, *, case: bool) -> bytes:
    """Return a pattern for a character. Unless ``case`` is true, it is for a text with ASCII letters in lower case."""
    if case or character.isascii():
        return re.escape((character if case else character.lower()).encode("utf-8", "replace"))
    forms = {form.encode("utf-8", "replace").lower() for form in (character, character.lower(), character.upper())}
    return b"(?:" + b"|".join(map(re.escape, sorted(forms))) + b")"
