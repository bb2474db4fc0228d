"""Tests for the times and ids that name a snapshot."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from farandole.exceptions import UsageError
from farandole.snapshots.model import Snapshot
from farandole.snapshots.moments import parse_moment, snapshot_at
from farandole.times import time_text

NOW = datetime(2026, 11, 30, 15, tzinfo=UTC).timestamp()
SNAPSHOTS = [
    Snapshot(id=f"{name}" * 32, time=datetime(2026, 11, *moment, tzinfo=UTC).timestamp())
    for name, moment in {"a1": (29, 8), "b2": (29, 23), "20": (30, 14, 5)}.items()
]


@pytest.fixture(autouse=True)
def utc(set_zone):
    set_zone("UTC")


@pytest.mark.parametrize(
    ("at", "which"),
    [
        ("latest", 2),
        ("14:05", 2),
        ("14:04", 1),
        ("23:30", 1),  # yesterday's
        ("2026-11-30T14:05", 2),
        ("2026-11-30 14:04:59", 1),
        ("2026-11-30T14:05+01:00", 1),
        ("2026-11-29T12:00Z", 0),
        ("2026-11-30 14:05:00 UTC", 2),
        ("2026-11-30 15:04:59 UTC+01:00", 1),
        ("2026-11-30", 1),
        ("a1a1a1", 0),
        ("20202020", 2),
    ],
)
def test_a_time_means_the_last_snapshot_until_then(at, which):
    assert snapshot_at(SNAPSHOTS, at, NOW) == SNAPSHOTS[which]


@pytest.mark.parametrize("at", ["", "yesterday", "25:00", "14:5", "2026-13-01", "2026", "a1a1", "9999-01-01", "A1A1A1"])
def test_what_is_no_time_is_refused(at):
    with pytest.raises(UsageError, match=r"is not a time of a snapshot; write `2026-11-30T14:05`, `14:05`, the id"):
        snapshot_at(SNAPSHOTS, at, NOW)


def test_a_time_before_all_snapshots_names_the_oldest():
    with pytest.raises(
        UsageError, match="no snapshot is from 2026-11-28 .* or before; the oldest is from 2026-11-29 08:00"
    ):
        snapshot_at(SNAPSHOTS, "2026-11-28", NOW)


def test_an_id_must_be_that_of_one_snapshot():
    with pytest.raises(UsageError, match="no snapshot has the id 'c3c3c3'; `%snapshot list` shows all ids"):
        snapshot_at(SNAPSHOTS, "c3c3c3", NOW)
    with pytest.raises(UsageError, match="more than one snapshot has the id 'a1a1a1'"):
        snapshot_at([SNAPSHOTS[0], Snapshot(id="a1a1a1" + "00" * 29, time=NOW)], "a1a1a1", NOW)


def test_without_snapshots_the_error_says_how_to_take_one():
    with pytest.raises(UsageError, match="there are no snapshots yet; `%snapshot take` takes one"):
        snapshot_at([], "latest", NOW)


def test_a_snapshot_has_the_time_that_the_list_shows():
    [first, second, _] = SNAPSHOTS
    within = Snapshot(id="d4" * 32, time=second.time + 0.9)
    assert snapshot_at([first, within], time_text(within.time, precise=True), NOW) == within


def test_a_clock_that_is_changed_keeps_the_time_of_the_day(set_zone):
    set_zone("Europe/Berlin")
    changed = datetime(2026, 10, 25, 12, tzinfo=UTC).timestamp()
    assert parse_moment("01:30", changed) == datetime(2026, 10, 24, 23, 30, tzinfo=UTC).timestamp()
