"""Finds the snapshot that a user means with a time or an id."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from farandole.exceptions import UsageError
from farandole.snapshots.model import Snapshot
from farandole.times import parsed_time, time_text

LATEST = "latest"
ID = re.compile(r"[0-9a-f]{6,64}")
CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?")
ZONE = re.compile(r" UTC([+-]\d\d:\d\d)?$")
"""The zone at the end of a time as `%snapshot list` shows it."""
FORMS = "`2026-11-30T14:05`, `14:05`, the id of a snapshot, or `latest`"


def snapshot_at(snapshots: Sequence[Snapshot], at: str, now: float | None = None) -> Snapshot:
    """Return the snapshot that ``at`` names, of those that are sorted by time, oldest first.

    A time means the last snapshot until then. Raises UsageError if there is none.
    """
    if not snapshots:
        raise UsageError("there are no snapshots yet; `%snapshot take` takes one")
    if at == LATEST:
        return snapshots[-1]
    if ID.fullmatch(at):
        return _with_id(snapshots, at)
    moment = parse_moment(at, time.time() if now is None else now)
    # `%snapshot list` shows whole seconds.
    earlier = [one for one in snapshots if int(one.time) <= moment]
    if not earlier:
        raise UsageError(
            f"no snapshot is from {time_text(moment, precise=True)} or before; the oldest is from "
            f"{time_text(snapshots[0].time, precise=True)}"
        )
    return earlier[-1]


def parse_moment(text: str, now: float) -> float:
    """Return a time in seconds since the epoch. A time of the day is today's, or yesterday's if today's is to come."""
    clock = CLOCK.fullmatch(text)
    if clock:
        # Without a zone, so that the offset is that of the time, which differs on the day when clocks are changed.
        today = datetime.fromtimestamp(now).astimezone().replace(tzinfo=None, second=0, microsecond=0)
        today = today.replace(hour=int(clock["hour"]), minute=int(clock["minute"]))
        return (today if today.timestamp() <= now else today - timedelta(days=1)).timestamp()
    moment = parsed_time(ZONE.sub(_offset, text)) if DATE.fullmatch(text) else None
    if moment is None:
        raise UsageError(f"{text!r} is not a time of a snapshot; write {FORMS}")
    return moment


def _offset(zone: re.Match[str]) -> str:
    return zone[1] or "+00:00"


def _with_id(snapshots: Sequence[Snapshot], beginning: str) -> Snapshot:
    """Return the only snapshot whose id begins with the given characters."""
    found = [one for one in snapshots if one.id.startswith(beginning)]
    if len(found) != 1:
        count = "more than one snapshot has" if found else "no snapshot has"
        raise UsageError(f"{count} the id {beginning!r}; `%snapshot list` shows all ids")
    return found[0]
