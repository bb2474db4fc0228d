"""Formats times and durations as text, and parses times. The page's `format.ts` has the same forms, without a zone."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone

from farandole.protocol import LATEST


def time_text(seconds: float, *, now: float | None = None, precise: bool = False) -> str:
    """Format a time in seconds since the epoch in the time zone of this process, e.g. 2026-11-25 14:05 UTC.

    The text names the zone, because containers are usually in UTC and their users are not. The date is left out if
    ``now`` is given and is on the same day. A precise text has seconds.
    """
    local = _local(seconds)
    # A zone without a name is written with its offset, e.g. UTC+07:00. Abbreviations such as IST are ambiguous.
    zone = timezone(local.utcoffset() or timedelta(0))
    is_today = now is not None and _local(now).date() == local.date()
    date, second = "" if is_today else "%Y-%m-%d ", ":%S" if precise else ""
    return local.astimezone(zone).strftime(f"{date}%H:%M{second} %Z")


def parsed_time(text: object) -> float | None:
    """Return an untrusted time, such as ``2026-11-25T14:05:00.25Z``, in seconds since the epoch, or None."""
    with suppress(ValueError, OverflowError):
        seconds = datetime.fromisoformat(text).timestamp() if isinstance(text, str) else -1.0
        return seconds if 0 <= seconds < LATEST else None
    return None


def _local(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()


def short_text(seconds: float) -> str:
    """Format a duration with three digits, e.g. 33.1 ms or 1.2 s."""
    # Three digits of very large and very small numbers would be in scientific notation.
    if seconds >= 99.95:
        return f"{seconds:.0f} s"
    if seconds >= 0.9995:
        return f"{seconds:.3g} s"
    return f"{1000 * seconds:.3g} ms" if seconds >= 1e-6 or not seconds else "< 0.001 ms"


def duration_text(seconds: float) -> str:
    """Format a number of seconds, e.g. 0:07, 1:02:03 or 2 d 3 h."""
    # Halves are rounded up, as in JavaScript, so that the page and the kernel show the same text.
    minutes, rest = divmod(int(max(0.0, seconds) + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days} d {hours_left} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
