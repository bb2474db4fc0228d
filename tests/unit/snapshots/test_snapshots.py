"""Tests for taking, listing and comparing snapshots with the real restic."""

from __future__ import annotations

import os

import pytest
from farandole.exceptions import SnapshotError, UsageError
from farandole.snapshots.choice import FILE
from farandole.snapshots.model import Change
from farandole.snapshots.snapshots import Snapshots


def test_snapshots_are_taken_listed_and_compared(site):
    data = site.home / "data"
    data.mkdir()
    (data / "clicks.csv").write_text("one")
    (data / "old.csv").write_text("old")
    first = site.snapshots.take("before, cleaning: 100 % \N{SNOWMAN}")
    (data / "clicks.csv").write_text("one, two")
    (data / "old.csv").unlink()
    (data / "new\nline").write_text("")
    second = site.snapshots.take()
    assert (first.files, first.size, first.unread) == (2, 6, ())
    assert 0 < second.added < 10_000
    assert "~/.cache" in first.left_out
    listed = site.snapshots.list()
    assert [one.short_id for one in listed] == [first.short_id, second.short_id]
    assert [one.message for one in listed] == ["before, cleaning: 100 % \N{SNOWMAN}", ""]
    versions = site.snapshots.list(data / "clicks.csv")
    assert [(one.short_id, one.kind, one.size) for one in versions] == [
        (first.short_id, "file", 3),
        (second.short_id, "file", 8),
    ]
    assert versions[1].modified == pytest.approx((data / "clicks.csv").stat().st_mtime, abs=1e-3)
    assert [one.short_id for one in site.snapshots.list(data / "old.csv")] == [first.short_id]
    assert [(one.short_id, one.kind) for one in site.snapshots.list(data)] == [
        (first.short_id, "dir"),
        (second.short_id, "dir"),
    ]
    assert site.snapshots.list(site.home / "nope") == []
    changes = [
        Change(kind="M", path="data/clicks.csv"),
        Change(kind="+", path="data/new\nline"),
        Change(kind="-", path="data/old.csv"),
    ]
    assert sorted(site.snapshots.diff(), key=lambda one: one.path) == changes
    assert {one.kind for one in site.snapshots.diff(second.id, first.id)} == {"M", "+", "-"}
    assert site.snapshots.diff("latest") == []


def test_files_are_left_out_by_choice(site):
    names = (
        ".cache/x",
        "__pycache__/x",
        "farandole/runs/1/checkpoints/x",
        "farandole/runs/1/run.json",
        "tmp/x",
        "b/tmp",
    )
    for name in names:
        (site.home / name).parent.mkdir(parents=True, exist_ok=True)
        (site.home / name).write_text("x")
    (site.home / FILE).parent.mkdir(parents=True)
    (site.home / FILE).write_text('exclude = ["tmp"]\ninclude = ["__pycache__"]')
    site.snapshots.take()
    restored = site.snapshots.restore(site.home, to=site.home.parent / "other")
    found = {str(each.relative_to(restored)) for each in restored.rglob("*") if each.is_file()}
    assert found == {"__pycache__/x", "farandole/runs/1/run.json", FILE}


def test_a_home_that_is_a_link_leaves_out_the_same_files(site, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(site.home)
    for name in ("HOME", "PWD"):
        monkeypatch.setenv(name, str(link))
    for name in (".cache/x", "farandole/runs/1/checkpoints/x", "farandole/runs/1/run.json", "scratch/x", "notes.txt"):
        (site.home / name).parent.mkdir(parents=True, exist_ok=True)
        (site.home / name).write_text("x")
    (site.home / FILE).parent.mkdir(parents=True)
    (site.home / FILE).write_text(f'exclude = ["{link}/scratch"]')
    snapshots = Snapshots(connect=site.connect)
    snapshots.take()
    restored = snapshots.restore(link, to=tmp_path / "other")
    found = {str(each.relative_to(restored)) for each in restored.rglob("*") if each.is_file()}
    assert found == {"farandole/runs/1/run.json", "notes.txt", FILE}


def test_a_home_without_files_and_a_pattern_that_is_not_valid_are_explained(site):
    with pytest.raises(SnapshotError, match="Your home has no files, except those that snapshots leave out"):
        site.snapshots.take()
    with pytest.raises(SnapshotError, match="Your home has no files"):
        site.snapshots.has_changes()
    (site.home / FILE).parent.mkdir(parents=True)
    (site.home / FILE).write_text('exclude = ["data[1"]')
    with pytest.raises(SnapshotError, match=r"does not accept a pattern in ~/.*snapshots.toml: .*data\[1\. Correct it"):
        site.snapshots.take()


def test_the_first_snapshot_has_all_and_one_without_changes_adds_nothing(site):
    (site.home / "random").write_bytes(os.urandom(2**20))
    assert site.snapshots.take().added > 2**20
    assert site.snapshots.take().added < 2**16


def test_changes_since_the_last_snapshot_are_noticed(site):
    (site.home / "data").mkdir()
    names = ("first", "data/second")
    for name in names:
        (site.home / name).write_text(name)
    assert site.snapshots.has_changes()
    site.snapshots.take()
    assert not site.snapshots.has_changes()
    (site.home / ".cache").mkdir()
    (site.home / ".cache" / "left out").write_text("x")
    assert not site.snapshots.has_changes()
    for change in (*((site.home / name).unlink for name in names), lambda: (site.home / "data").chmod(0o700)):
        change()
        assert site.snapshots.has_changes()
        site.snapshots.take()
    assert len(site.snapshots.list()) == 4


def test_one_snapshot_cannot_be_compared(strange):
    with pytest.raises(UsageError, match="there is one snapshot, and two are needed"):
        strange.snapshots.diff()


def test_a_message_that_is_too_long_is_refused(strange):
    with pytest.raises(UsageError, match="the message has 201 characters; use at most 200"):
        strange.snapshots.take("x" * 201)


def test_the_home_itself_is_not_listed(strange):
    with pytest.raises(UsageError, match="all snapshots have your home; name a file or folder in it"):
        strange.snapshots.list(strange.home)
