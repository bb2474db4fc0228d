"""A part of a log as its reader sees it, in which a search finds a text."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate

BEFORE = 200
"""How many characters before a match are shown if its line is long."""
ESCAPE = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
"""Matches an escape sequence, which changes the colour or moves the cursor."""


class Window:
    """A part of a log without escape sequences. Unless ``case`` is true, all letters are in one case.

    A *place* is the offset of a byte in the part, and an *index* is that of a character in `searched`.
    """

    def __init__(self, data: bytes, *, case: bool) -> None:
        self._data = data
        # Each byte that is not UTF-8 becomes one character, so that places can be computed from the text.
        self._text = ESCAPE.sub(b"", data).decode("utf-8", "surrogateescape")
        self.searched = self._text if case else self._text.casefold()

    def place(self, index: int) -> int:
        """Return the place of a character."""
        character = self._character(index)
        byte = character if self._text.isascii() else len(_encoded(self._text[:character]))
        cuts, removed = self._escapes
        return byte + removed[bisect_right(cuts, byte)]

    def index(self, place: int) -> int:
        """Return the index of the first character at or after a place."""
        return bisect_left(range(len(self.searched)), place, key=self.place)

    def line(self, start: int, stop: int) -> str:
        """Return the line of a match, or the part of a long line that begins shortly before the match.

        ``start`` and ``stop`` are the indices at which the match begins and ends.
        """
        start, stop = self._character(start), self._character(stop)
        begin = max(self._text.rfind("\n", 0, start) + 1, start - BEFORE)
        end = self._text.find("\n", stop)
        text = self._text[begin : end if end >= 0 else None]
        # Bytes that are not UTF-8 are left out.
        return text.encode("utf-8", "ignore").decode().rstrip("\r")

    def _character(self, index: int) -> int:
        """Return which character of the text is at an index of `searched`, where "ß" for example has become "ss"."""
        if len(self.searched) == len(self._text):
            return index
        return bisect_right(self._starts, index) - 1

    @cached_property
    def _starts(self) -> list[int]:
        """The index of each character of the text, and the length of `searched`."""
        return list(accumulate((len(character.casefold()) for character in self._text), initial=0))

    @cached_property
    def _escapes(self) -> tuple[list[int], list[int]]:
        """The byte of the text at which each escape sequence was, and how many bytes were removed before each one.

        The last number is that of all bytes that were removed. Both lists are made only if a match is found, because
        some logs consist mostly of escape sequences.
        """
        cuts: list[int] = []
        removed = [0]
        for found in ESCAPE.finditer(self._data):
            cuts.append(found.start() - removed[-1])
            removed.append(removed[-1] + found.end() - found.start())
        return cuts, removed


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
