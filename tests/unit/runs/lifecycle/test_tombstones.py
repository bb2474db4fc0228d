"""Tests for the marks of deleted runs, with which drivers and workers do not bring these runs back."""

import errno
import os
import time

import pytest
from farandole.protocol import DELETED_RUNS
from farandole.runs.lifecycle.tombstones import KEPT_SECONDS, is_deleted, marked_as_deleted, prune, unmark


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "runs" / "20260101-000000-0000"


@pytest.fixture(autouse=True)
def store(folder):
    folder.parent.mkdir()
    return folder.parent


def test_a_deleted_run_is_remembered_until_it_is_unmarked(folder):
    assert not is_deleted(folder)
    with marked_as_deleted(folder):
        assert is_deleted(folder)
    assert is_deleted(folder)
    assert not is_deleted(folder.with_name("other"))
    unmark(folder)
    unmark(folder)
    assert not is_deleted(folder)


def test_a_failed_deletion_leaves_no_mark(folder):
    with pytest.raises(PermissionError), marked_as_deleted(folder):
        raise PermissionError
    assert not is_deleted(folder)


def test_only_old_tombstones_are_pruned(folder, store):
    old = folder.with_name("old")
    for one in (folder, old):
        with marked_as_deleted(one):
            pass
    then = time.time() - KEPT_SECONDS - 10
    os.utime(store / DELETED_RUNS / old.name, (then, then))
    prune(store)
    assert (is_deleted(folder), is_deleted(old)) == (True, False)
    prune(store / "missing")


def test_a_full_volume_does_not_prevent_a_deletion(folder, monkeypatch):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    with marked_as_deleted(folder):
        pass
    assert not is_deleted(folder)


def test_tombstones_behind_a_link_are_neither_written_nor_removed(folder, store, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / folder.name).touch()
    os.utime(outside / folder.name, (1, 1))
    (store / DELETED_RUNS).symlink_to(outside)
    prune(store)
    unmark(folder)
    with pytest.raises(OSError, match="symbolic link"), marked_as_deleted(folder.with_name("new")):
        pass
    assert [path.name for path in outside.iterdir()] == [folder.name]
