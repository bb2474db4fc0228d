"""Which snapshots are kept: a rule about when they arrived, because users can write any time into a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot in a repository: when it arrived, and whether its user gave it a message."""

    id: str
    arrived: float
    has_message: bool = False


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long snapshots are kept: hourly ones for ``hours``, daily ones and those with a message for days.

    - The snapshot that arrived last is always kept, and so is each snapshot in its first hour.
    - Of an hour or a day, the snapshot that arrived first is kept, so that no later one can evict it.
    """

    hours: int
    days: int
    message_days: int

    def expired(self, snapshots: Iterable[Snapshot], now: float) -> list[str]:
        """Return the ids of the snapshots that are not kept."""
        ordered = sorted(snapshots, key=lambda snapshot: (snapshot.arrived, snapshot.id))
        kept = {snapshot.id for snapshot in ordered[-1:]}
        kept |= _first_of_each(HOUR, [one for one in ordered if now - one.arrived <= self.hours * HOUR])
        kept |= _first_of_each(DAY, [one for one in ordered if now - one.arrived <= self.days * DAY])
        kept |= {one.id for one in ordered if one.has_message and now - one.arrived <= self.message_days * DAY}
        kept |= {one.id for one in ordered if now - one.arrived <= HOUR}
        return [snapshot.id for snapshot in ordered if snapshot.id not in kept]


def _first_of_each(seconds: int, ordered: list[Snapshot]) -> set[str]:
    """Return the ids of the first snapshots in each interval of so many seconds."""
    first: dict[int, str] = {}
    for snapshot in ordered:
        first.setdefault(int(snapshot.arrived // seconds), snapshot.id)
    return set(first.values())
