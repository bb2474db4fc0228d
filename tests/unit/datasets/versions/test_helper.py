"""Tests for the command of the container that publishes, as the hub runs it."""

import json
import subprocess
import sys

import pytest
from farandole.datasets.versions.helper import EXISTS, PUBLISH
from farandole.datasets.versions.manifest import MANIFEST, PART, verify


@pytest.fixture
def folders(tmp_path):
    """A folder in a home, and an empty volume."""
    for name in ("home/digits", "volume"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home" / "digits" / "a.txt").write_text("42")
    return tmp_path / "home" / "digits", tmp_path / "volume"


def run(source, target, *more):
    assert PUBLISH[0] == "python"
    # The home is the working directory of the image.
    command = [sys.executable, *PUBLISH[1:], source, target, *more]
    done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_a_folder_becomes_a_version(folders, tmp_path):
    status, outcome = run(*folders, "--result", tmp_path / "result")
    assert status == 0
    assert outcome == {"files": 1, "bytes": 2, "digest": verify(folders[1])}
    assert json.loads((tmp_path / "result").read_text()) == outcome


def test_a_version_is_not_replaced(folders):
    digest = run(*folders)[1]["digest"]
    (folders[0] / "a.txt").write_text("43")
    status, outcome = run(*folders)
    assert status == EXISTS
    assert f"has {MANIFEST!r} already" in outcome["error"]
    assert verify(folders[1]) == digest


def test_what_a_killed_helper_has_left_is_deleted(folders):
    (folders[1] / "train").mkdir()
    (folders[1] / "train" / "half.bin").write_text("4")
    (folders[1] / "train").chmod(0o555)
    (folders[1] / PART).touch()
    (folders[1] / "lost+found").mkdir()
    assert run(*folders)[0] == 0
    assert sorted(path.name for path in folders[1].iterdir()) == [MANIFEST, "a.txt", "lost+found"]


def test_a_volume_with_other_files_is_taken(folders):
    (folders[1] / "theirs.txt").write_text("")
    status, outcome = run(*folders)
    assert (status, "'theirs.txt'" in outcome["error"]) == (EXISTS, True)
    assert [path.name for path in folders[1].iterdir()] == ["theirs.txt"]


def test_a_long_reason_is_cut_to_what_kubernetes_keeps(folders, tmp_path):
    link = folders[0].joinpath(*["数" * 80] * 10, "link")
    link.parent.mkdir(parents=True)
    link.symlink_to("a.txt")
    status, outcome = run(*folders, "--result", tmp_path / "result")
    assert (status, outcome["error"][:10]) == (1, f"'{'数' * 9}")
    assert len((tmp_path / "result").read_bytes()) <= 4096


def test_a_link_out_of_the_home_is_refused(folders):
    """A program of the user may send any path to the hub."""
    (folders[0].parent / "root").symlink_to("/")
    status, outcome = run(folders[0].parent / "root" / "etc", folders[1])
    assert (status, "root/etc is a link to /etc;" in outcome["error"]) == (1, True)
    assert list(folders[1].iterdir()) == []


def test_a_refusal_is_reported_without_the_place_of_the_volume(folders):
    (folders[0] / "link").symlink_to("a.txt")
    status, outcome = run(*folders)
    assert (status, "'link'" in outcome["error"]) == (1, True)
    status, outcome = run(folders[0] / "nowhere", folders[1])
    assert status == 1
    assert outcome["error"] == f"{folders[0]}/nowhere could not be copied: 'nowhere': No such file or directory"


def test_modules_in_the_home_are_not_imported(folders):
    home = folders[0].parent
    for name in ("farandole", "json"):
        (home / name).mkdir()
        (home / name / "__init__.py").write_text("raise SystemExit('imported from the home')")
    assert run(*folders)[0] == 0
