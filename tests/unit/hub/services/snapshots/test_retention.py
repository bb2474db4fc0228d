"""Tests for the rule that says which snapshots are kept."""

from __future__ import annotations

from hub.services.snapshots.retention import DAY, HOUR, Retention, Snapshot

NOW = 1_000 * DAY + 12 * HOUR + 1800.0
RULE = Retention(hours=24, days=30, message_days=365)


def kept(*ages: float, rule: Retention = RULE, messages: tuple[float, ...] = ()) -> list[float]:
    """Return the ages of those snapshots that are kept, the oldest first."""
    snapshots = [Snapshot(id=str(age), arrived=NOW - age, has_message=age in messages) for age in (*ages, *messages)]
    expired = rule.expired(snapshots, NOW)
    return sorted((age for age in (*ages, *messages) if str(age) not in expired), reverse=True)


def test_the_last_snapshot_is_kept_for_ever() -> None:
    assert kept(2000 * DAY, 900 * DAY) == [900 * DAY]
    assert kept() == []


def test_all_snapshots_are_kept_for_an_hour() -> None:
    assert kept(10, 20, 30, 3000) == [3000, 30, 20, 10]


def test_the_first_of_each_hour_is_kept_for_a_day() -> None:
    # The hour began 1800 s ago.
    ages = [2 * HOUR + 1700, 2 * HOUR + 100, 3 * HOUR + 1000]
    assert kept(*ages, 0) == [3 * HOUR + 1000, 2 * HOUR + 1700, 0]


def test_the_first_of_each_day_is_kept_for_a_month() -> None:
    ages = [29 * DAY + 2 * HOUR, 29 * DAY, 28 * DAY, 31 * DAY]
    assert kept(*ages, 0) == [29 * DAY + 2 * HOUR, 28 * DAY, 0]


def test_of_automatic_snapshots_there_is_one_an_hour_for_a_day_and_one_a_day_for_a_month() -> None:
    ages = [hours * HOUR + 600.0 for hours in range(40 * 24)]
    found = kept(*ages)
    assert [age for age in found if age < DAY] == ages[:24][::-1]
    assert [(NOW - age) // DAY for age in found if age > DAY] == list(range(970, 1000))


def test_snapshots_with_a_message_are_kept_for_a_year() -> None:
    assert kept(0, messages=(200 * DAY, 200 * DAY + 1, 366 * DAY)) == [200 * DAY + 1, 200 * DAY, 0]


def test_no_later_snapshot_evicts_an_earlier_one() -> None:
    """A program with the user's token adds many snapshots, but those from before expire as they would without them."""
    before = [age * HOUR + 900.0 for age in range(1, 24 * 40)]
    flood = [each / 10 for each in range(8000)]
    assert set(kept(*before, 0)) - {0} == set(kept(*before, *flood)) - set(flood)


def test_snapshots_from_the_future_are_kept() -> None:
    assert kept(-5 * DAY, -1, 0) == [0, -1, -5 * DAY]


def test_settings_can_keep_nothing_but_the_last() -> None:
    assert kept(3 * HOUR, 2 * HOUR, rule=Retention(hours=0, days=0, message_days=0)) == [2 * HOUR]
