"""Tests for how entries and versions of snapshots are compared with the home, without restic."""

from __future__ import annotations

import os

import pytest
from farandole.server.panel import wire_routes
from farandole.server.panel.snapshots.messages import entry_message, unread_notices, version_messages
from farandole.snapshots.contents import Entry
from farandole.snapshots.model import TakenSnapshot, Version

from tests.unit.server.panel.test_wire import misfit

THEN = 1_600_000_000.25


@pytest.mark.parametrize(
    ("content", "modified", "now"),
    [
        ("abc", THEN, "same"),
        ("abc", THEN + 0.0001, "same"),
        ("abcd", THEN, "different"),
        ("abc", THEN + 1, "newer"),
        ("abc", THEN - 1, "different"),
    ],
)
def test_a_file_is_compared_by_size_and_time(tmp_path, content, modified, now):
    (tmp_path / "x").write_text(content)
    os.utime(tmp_path / "x", (modified, modified))
    found = entry_message(tmp_path, Entry("x", "file", 3, THEN))
    assert misfit(found, wire_routes.SnapshotEntry) is None
    assert found["now"] == now


def test_what_has_another_kind_now_differs_and_folders_are_not_compared(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("folder", "link"):
        os.utime(tmp_path / name, (THEN, THEN), follow_symlinks=False)
    kinds = [("folder", "dir"), ("folder", "file"), ("link", "symlink"), ("link", "file"), ("none", "dir")]
    states = [entry_message(tmp_path, Entry(name, kind, 7, THEN))["now"] for name, kind in kinds]
    assert states == ["same", "different", "same", "different", "missing"]
    assert entry_message(tmp_path, Entry("folder", "dir", 0, THEN + 99))["now"] == "same"


def test_names_that_are_not_utf_8_or_too_long_are_no_error(tmp_path):
    strange = entry_message(tmp_path, Entry("latin-\N{REPLACEMENT CHARACTER}", "fifo", 0, THEN))
    # It may exist: restic does not say its name.
    assert (strange["restorable"], strange["kind"], strange["now"]) == (False, "other", "same")
    assert entry_message(tmp_path, Entry("x" * 5000, "file", 0, THEN))["now"] == "missing"


def test_a_version_has_changed_if_it_differs_from_the_one_in_the_snapshot_before(tmp_path):
    def version(time, size, modified, kind="file"):
        return Version(id="a" * 64, time=time, kind=kind, size=size, modified=modified)

    newest_first = [version(4, 2, 9), version(3, 1, 9), version(2, 1, 5), version(1, 1, 5)]
    found = version_messages(tmp_path / "x", newest_first)
    assert all(misfit(one, wire_routes.SnapshotVersion) is None for one in found)
    assert [one["changed"] for one in found] == [True, True, False, True]
    assert version_messages(tmp_path / "x", []) == []


def test_files_that_could_not_be_read_are_named_up_to_a_limit():
    rest = {"id": "a" * 64, "time": 1.0, "files": 1, "size": 1, "added": 1}
    assert unread_notices(TakenSnapshot(**rest)) == ()
    [notice] = unread_notices(TakenSnapshot(**rest, unread=("two\nlines", *map(str, range(11)))))
    assert notice == (
        "Not in the snapshot, because they could not be read: two?lines, 0, 1, 2, 3, 4, 5, 6, 7, 8 and 2 more"
    )
