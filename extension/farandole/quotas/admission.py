"""Decides whether a run may begin: a run that begins in a full home would lose what it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from farandole.exceptions import UsageError
from farandole.quotas.home import HomeUse, Measurement, is_own_disk, limit_of, read_use, use_of
from farandole.quotas.measure import MeasureError, measure

QUICK_SECONDS = 1.0
"""A home whose last measurement was quicker is measured at the start of each run."""
WAIT_SECONDS = 60.0


def current_use(
    environ: Mapping[str, str] = os.environ, home: Path | None = None, *, wait: float = WAIT_SECONDS
) -> HomeUse | None:
    """Return the use of the user's home for a run that begins, or None if the hub sets no limit.

    - A home that can be measured quickly is measured again. One with a file system of its own is measured only if it is
      nearly full, to name what takes most.
    - A home that seems to be full is always measured again: the user may have deleted files.
    - If this takes longer than ``wait`` seconds, the last measurement counts.
    """
    limit, home = limit_of(environ), home or Path.home()
    known = read_use(environ, home)
    if limit is None or known is None:
        return None
    last = Measurement.read(home)
    is_slow = last is not None and last.seconds > QUICK_SECONDS
    is_useful = known.is_nearly_full or not is_own_disk(os.statvfs(home), limit)
    if known.is_full or (is_useful and not is_slow):
        with suppress(MeasureError):
            return use_of(home, limit, measure(home, seconds=wait))
    return known


def admitted(use: HomeUse | None) -> str:
    """Return a warning with which a run begins, or an empty string. Raises UsageError if the home is full."""
    if use is None:
        return ""
    if use.is_full:
        raise UsageError(f"the run was not started, because your home is full ({use.text}). {use.advice}")
    return use.warning
