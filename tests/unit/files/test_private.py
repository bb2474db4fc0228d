"""Tests of a user's folder for temporary files. Another user is simulated, because tests run as one user."""

import os
import stat
import tempfile

import pytest
from farandole.files.private import private_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def mode(folder):
    return stat.S_IMODE(folder.stat().st_mode)


def test_only_the_user_can_enter_the_folder_and_it_stays(temporary):
    folder = private_folder("some")
    assert folder == temporary / f"some-{os.getuid()}"
    assert mode(folder) == 0o700
    (folder / "file").touch()
    assert private_folder("some") == folder
    assert (folder / "file").exists()


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_what_others_can_replace_is_not_used(temporary, kind):
    taken = temporary / f"some-{os.getuid()}"
    if kind == "open":
        taken.mkdir()
        taken.chmod(0o777)
    elif kind == "link":
        (temporary / "elsewhere").mkdir(mode=0o700)
        taken.symlink_to(temporary / "elsewhere")
    else:
        taken.touch(mode=0o600)
    folder = private_folder("some")
    assert folder.parent == temporary
    assert folder != taken
    assert mode(folder) == 0o700


def test_the_folder_of_another_user_is_not_used(temporary, monkeypatch):
    own = private_folder("some")
    other = os.getuid() + 1
    taken = own.rename(temporary / f"some-{other}")
    monkeypatch.setattr(os, "getuid", lambda: other)
    assert private_folder("some") != taken
