"""Formats sizes as text. The page's `format.ts` uses the same units."""

from __future__ import annotations

from math import floor

SMALL_UNITS = ((1, "B"), (2**10, "KiB"), (2**20, "MiB"))


def size_text(count: float) -> str:
    """Format a number of bytes, e.g. 640 MiB or 2.4 GiB."""
    # Halves are rounded up, as in JavaScript, so that the page and the kernel show the same text.
    for unit, name in SMALL_UNITS:
        rounded = floor(count / unit + 0.5)
        if rounded < 1024:
            return f"{rounded} {name}"
    return f"{floor(count / 2**30 * 10 + 0.5) / 10:.1f} GiB"


def share_text(part: float, total: float) -> str:
    """Format a part of a total number of bytes, e.g. 2.4 GiB of 16.0 GiB."""
    return f"{size_text(part)} of {size_text(total)}"
