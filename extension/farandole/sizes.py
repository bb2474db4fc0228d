"""Formats sizes as text. The page's `format.ts` uses the same units."""

from __future__ import annotations

from math import floor

UNITS = ((2**30, "GiB", 1), (2**20, "MiB", 0), (2**10, "KiB", 0))


def size_text(count: float) -> str:
    """Format a number of bytes, e.g. 640 MiB or 2.4 GiB."""
    for unit, name, digits in UNITS:
        if count >= unit:
            # Halves are rounded up, as in JavaScript, so that the page and the kernel show the same text.
            rounded = floor(count / unit * 10**digits + 0.5) / 10**digits
            return f"{rounded:.{digits}f} {name}"
    return f"{count:.0f} B"


def share_text(part: float, total: float) -> str:
    """Format a part of a total number of bytes, e.g. 2.4 GiB of 16.0 GiB."""
    return f"{size_text(part)} of {size_text(total)}"
