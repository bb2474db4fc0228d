"""Suggestions for misspelled words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the known words most similar to ``word``, or an empty string if none is similar.

    The sentence begins with a space, so that it can follow the last sentence of an error message.
    """
    similar = difflib.get_close_matches(word, sorted({*known} - {word}), cutoff=0.7)
    return f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
