"""Tests for `Snapshots.restore` with the real restic: nothing is overwritten, and files are as they were."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import PurePath

import psutil
import pytest
from farandole.exceptions import SnapshotError, UsageError
from farandole.snapshots.choice import PARTIAL
from farandole.snapshots.place import beside, put

from tests.homes import facts
from tests.unit.snapshots.conftest import PASSWORD

RESTORES = """
import sys
from pathlib import Path
from farandole.snapshots.connection import Repository
from farandole.snapshots.snapshots import Snapshots

home, url, password = sys.argv[1:]
Snapshots(home=Path(home), connect=lambda: Repository(url=url, password=password)).restore(f"{home}/random")
"""


def restore(site, path, to, **options):
    return site.snapshots.restore(site.home / path, to=to, **options)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("two\nlines", "newline"),
        (os.fsdecode(b"latin-\xe9"), "latin"),
        ("a*[b]?\\c", "wildcards"),
    ],
    ids=["newline", "not-utf-8", "wildcards"],
)
def test_a_file_with_a_strange_name_is_restored_alone(strange, tmp_path, name, content):
    assert restore(strange, f"data/{name}", tmp_path) == tmp_path / name
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == content


def test_a_folder_is_restored_as_it_was(strange, tmp_path):
    found, data = restore(strange, "data", tmp_path), strange.home / "data"
    assert facts(found) == facts(data)
    assert {each.name for each in found.iterdir()} == {each.name for each in data.iterdir()} - {"socket"}
    assert (found / "plain.txt").samefile(found / "hard.txt")
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_a_sparse_file_has_holes_and_its_time(strange, tmp_path):
    found, original = restore(strange, "data/sparse", tmp_path), strange.home / "data" / "sparse"
    assert found.stat().st_size == 8 * 2**20
    assert found.stat().st_blocks * 512 < 2**20
    assert found.stat().st_mtime == original.stat().st_mtime
    assert found.read_bytes() == original.read_bytes()


def test_a_link_is_restored_as_a_link(strange, tmp_path):
    assert str(restore(strange, "data/link", tmp_path).readlink()) == "plain.txt"


def test_the_whole_home_goes_into_another_folder(strange, tmp_path):
    with pytest.raises(UsageError, match="would be overwritten"):
        strange.snapshots.restore(strange.home)
    assert strange.snapshots.restore(strange.home, to=tmp_path / "old") == tmp_path / "old" / "home"
    assert (tmp_path / "old" / "home" / "data" / "plain.txt").read_text() == "first"


def test_only_the_user_can_enter_folders_that_are_created_again(site):
    private = site.home / "private"
    (private / "keys").mkdir(parents=True)
    (private / "keys" / "id").write_text("secret")
    (private / "other").write_text("x")
    site.snapshots.take()
    shutil.rmtree(private)
    assert site.snapshots.restore(private / "keys" / "id") == private / "keys" / "id"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert (private / "keys" / "id").read_text() == "secret"
    assert not (private / "other").exists()
    assert [each.name for each in site.home.iterdir()] == ["private"]


def test_a_newer_file_is_kept(site):
    path = site.home / "clicks.csv"
    path.write_text("old")
    taken = site.snapshots.take()
    path.write_text("new")
    with pytest.raises(UsageError, match=r"clicks\.csv' exists, and would be overwritten.*`--keep-both`.*`--to DIR`"):
        site.snapshots.restore(path)
    assert path.read_text() == "new"
    found = site.snapshots.restore(path, keep_both=True)
    assert found == beside(path, taken.time)
    assert (found.read_text(), path.read_text()) == ("old", "new")
    with pytest.raises(UsageError, match=rf"{found.name}' exists, too, so this version has been restored before"):
        site.snapshots.restore(path, keep_both=True)
    assert sorted(site.home.iterdir()) == sorted([path, found])


def test_the_name_beside_a_file_has_the_time(tmp_path, monkeypatch):
    assert beside(tmp_path / "clicks.csv", 1_600_000_000).name.startswith("clicks.2020-09-1")
    assert beside(tmp_path / "clicks.csv", 1_600_000_000).suffix == ".csv"


def test_a_path_that_the_snapshot_does_not_have_is_refused(strange, tmp_path):
    with pytest.raises(UsageError, match=r"'nope' is not in the snapshot [0-9a-f]{8} of .*`%snapshot list PATH`"):
        restore(strange, "nope", tmp_path / "old")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "", "nul\0"])
def test_a_path_that_is_not_in_the_home_is_refused(strange, tmp_path, path):
    with pytest.raises(UsageError, match="is not in your home|is not a path"):
        strange.snapshots.restore(path, to=tmp_path)


def test_a_restore_that_the_disk_has_no_room_for_is_stopped(strange, tmp_path, monkeypatch):
    monkeypatch.setattr("farandole.snapshots.restore.QUICK_SECONDS", 0)
    monkeypatch.setattr("farandole.snapshots.restore.room", lambda target: 5)
    with pytest.raises(SnapshotError, match=r"data' needs 8 MiB, and there is room for 5 B.*`--to`"):
        restore(strange, "data", tmp_path / "old")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert restore(strange, "data", tmp_path / "old").is_dir()


@pytest.mark.parametrize("name", ["plain.txt", "link", "pipe"])
def test_a_disk_without_hard_links_gets_files_and_keeps_those_that_exist(strange, tmp_path, monkeypatch, name):
    def refuse(*_args, **_options):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    found = restore(strange, f"data/{name}", tmp_path)
    assert facts(tmp_path)[name][0] == facts(strange.home / "data")[name][0]
    assert [each.name for each in tmp_path.iterdir()] == [name]
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "x").write_text("restored")
    with pytest.raises(FileExistsError):
        put(tmp_path / "partial", PurePath("x"), found)
    assert facts(tmp_path)[name][0] == facts(strange.home / "data")[name][0]


def test_the_folder_of_the_notebook_can_be_restored_after_it_was_deleted(site, monkeypatch):
    folder = site.home / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("first")
    site.snapshots.take()
    monkeypatch.chdir(folder)
    shutil.rmtree(folder)
    with pytest.raises(UsageError, match=r"working directory no longer exists; write 'notes\.txt' as a path with `~/`"):
        site.snapshots.restore("notes.txt")
    assert site.snapshots.restore("~/project") == folder
    assert (folder / "notes.txt").read_text() == "first"


@pytest.mark.release
def test_an_interrupted_restore_leaves_nothing(site):
    (site.home / "random").write_bytes(os.urandom(256 * 2**20))
    site.snapshots.take()
    (site.home / "random").unlink()
    script = subprocess.Popen([sys.executable, "-c", RESTORES, site.home, site.repository, PASSWORD])
    with script:
        restic = []
        while not list(site.home.glob(f"{PARTIAL}*/**/random")):
            assert script.poll() is None
            restic = psutil.Process(script.pid).children() or restic
        script.send_signal(signal.SIGINT)
    assert script.returncode == -signal.SIGINT
    assert list(site.home.iterdir()) == []
    assert not any(each.is_running() for each in restic)


def test_a_target_that_is_no_folder_is_refused(strange, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="exists"):
        restore(strange, "data/plain.txt", tmp_path / "file")
