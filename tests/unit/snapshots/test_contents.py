"""Tests for listing folders of snapshots, and for counting changes, with the real restic."""

from __future__ import annotations

import os
from pathlib import PurePath

import pytest
from farandole.exceptions import SnapshotError, UsageError
from farandole.snapshots.contents import ChangeCount, Entry
from farandole.snapshots.model import Snapshot


def test_a_folder_is_listed_without_the_folders_in_it(site):
    deep = site.home / "data" / "raw" / "deep"
    deep.mkdir(parents=True)
    (deep / "hidden.csv").write_text("x")
    (site.home / "data" / "clicks.csv").write_text("one")
    os.utime(site.home / "data" / "clicks.csv", (1_600_000_000, 1_600_000_000.25))
    (site.home / "data" / "b.txt").symlink_to("clicks.csv")
    taken = site.snapshots.take()
    contents = site.contents
    assert [one.name for one in contents.folder(taken, PurePath())] == ["data"]
    listed = contents.folder(taken, PurePath("data"))
    assert [(one.name, one.kind) for one in listed] == [("raw", "dir"), ("b.txt", "symlink"), ("clicks.csv", "file")]
    assert listed[2] == Entry("clicks.csv", "file", 3, 1_600_000_000.25)
    assert [one.name for one in contents.folder(taken, PurePath("data/raw/deep"))] == ["hidden.csv"]
    for name in ("nope", "data/clicks.csv", "data/b.txt", "dat", "data/raw/deep/hidden.csv/x"):
        assert contents.folder(taken, PurePath(name)) is None


def test_strange_names_are_listed(strange):
    [taken] = strange.snapshots.list()
    names = {one.name for one in strange.contents.folder(taken, PurePath("data"))}
    assert {"two\nlines", "a*[b]?\\c", "latin-\N{REPLACEMENT CHARACTER}", "pipe"} <= names
    assert [one.name for one in strange.contents.folder(taken, PurePath("data/locked"))] == ["secret"]


def test_changes_between_two_snapshots_are_counted(site):
    for name in ("same", "changed", "removed"):
        (site.home / name).write_text(name)
    (site.home / "folder").mkdir()
    older = site.snapshots.take()
    (site.home / "changed").write_bytes(os.urandom(50_000))
    (site.home / "removed").unlink()
    (site.home / "folder" / '"message_type":"statistics"').write_bytes(os.urandom(100_000))
    newer = site.snapshots.take()
    found = site.contents.changes(older, newer)
    assert found.files == 3
    assert 150_000 <= found.added < 160_000
    assert site.contents.changes(newer, newer) == ChangeCount(files=0, added=0)


def test_a_folder_that_was_moved_and_replaced_by_a_link_is_found_as_it_was(site, tmp_path):
    (site.home / "data").mkdir()
    (site.home / "data" / "clicks.csv").write_text("one")
    taken = site.snapshots.take()
    (site.home / "data").rename(tmp_path / "large disk")
    (site.home / "data").symlink_to(tmp_path / "large disk")
    path, contents = PurePath("data/clicks.csv"), site.contents
    assert [one.short_id for one in contents.versions(path)] == [taken.short_id]
    found = contents.restore_entry(path, taken.id, site.home / "old", keep_both=False)
    assert (found, found.read_text()) == (site.home / "old" / "clicks.csv", "one")
    with pytest.raises(UsageError, match="would be overwritten"):
        contents.restore_entry(path, taken.id, None, keep_both=False)


def test_a_snapshot_that_was_removed_is_an_error(site):
    (site.home / "x").write_text("x")
    taken = site.snapshots.take()
    gone = Snapshot(id="f" * 64, time=0.0)
    for path in ("", "x"):
        with pytest.raises(SnapshotError, match="has removed the snapshot ffffffff"):
            site.contents.folder(gone, PurePath(path))
    with pytest.raises(SnapshotError, match="restic failed"):
        site.contents.changes(gone, taken)
