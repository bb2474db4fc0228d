"""Tests for automatic snapshots with the real restic: when they are taken, and what the log says about it."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from farandole.snapshots.automatic import LOCK, MINUTES, OFF, AutomaticSnapshots, alone, take_automatically
from farandole.snapshots.choice import FILE

HOUR = 3600.0


def automatic(site, seconds=HOUR):
    return AutomaticSnapshots(site.snapshots, site.home, seconds, logging.getLogger("server"))


@pytest.fixture(autouse=True)
def log(caplog):
    """The log of the notebook server."""
    caplog.set_level(logging.INFO, logger="server")
    return caplog


def test_one_is_taken_if_files_have_changed_and_the_last_one_is_old_enough(site, log):
    (site.home / "notes.txt").write_text("first")
    assert automatic(site).take_if_due() == HOUR
    [taken] = site.snapshots.list()
    assert taken.message == ""
    [line] = log.messages
    assert line.startswith(f"Took the automatic snapshot {taken.short_id}: 1 files, new: ")
    # Too early.
    (site.home / "notes.txt").write_text("second")
    assert 0 < automatic(site).take_if_due() < HOUR
    assert len(site.snapshots.list()) == 1
    # Late enough.
    assert automatic(site, seconds=0.001).take_if_due() == 0.001
    assert len(site.snapshots.list()) == 2
    # Nothing has changed.
    assert automatic(site, seconds=0.001).take_if_due() == 0.001
    assert len(site.snapshots.list()) == len(log.messages) == 2


def test_a_snapshot_of_the_user_counts(site):
    (site.home / "notes.txt").write_text("first")
    site.snapshots.take("my own")
    (site.home / "notes.txt").write_text("second")
    assert 0 < automatic(site).take_if_due() < HOUR
    assert len(site.snapshots.list()) == 1


def test_two_servers_of_a_user_take_one(site, log):
    (site.home / "notes.txt").write_text("first")
    with alone(site.home / LOCK) as first, alone(site.home / LOCK) as second:
        assert (first, second) == (True, False)
        assert automatic(site).take_if_due() == HOUR
    assert site.snapshots.list() == log.messages == []
    automatic(site).take_if_due()
    assert len(site.snapshots.list()) == 1


def test_a_failure_is_logged_and_tried_again(site, log):
    (site.home / FILE).parent.mkdir(parents=True)
    (site.home / FILE).write_text("exclude = 1")
    assert automatic(site).take_if_due() == HOUR
    [line] = log.messages
    assert line.startswith("No automatic snapshot was taken. The next try is in 1:00:00. The reason: 'exclude' in ~/")


def test_the_last_failure_is_known_until_a_try_succeeds(site):
    ours = automatic(site)
    (site.home / FILE).parent.mkdir(parents=True)
    (site.home / FILE).write_text("exclude = 1")
    begun = time.time()
    ours.take_if_due()
    assert ours.failure is not None
    assert ours.failure.time >= begun
    assert ours.failure.reason.startswith("'exclude' in ~/")
    (site.home / FILE).write_text("")
    ours.take_if_due()
    assert ours.failure is None


def test_without_the_variable_of_the_hub_none_are_taken():
    before = threading.active_count()
    environ = {"FARANDOLE_HUB_URL": "http://127.0.0.1:1"}
    assert take_automatically(logging.getLogger("server"), environ) is None
    assert take_automatically(logging.getLogger("server"), {**environ, MINUTES: OFF}) is None
    assert threading.active_count() == before
