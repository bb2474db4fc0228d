"""Tests that a process removes temporary folders of killed processes, but not of running processes."""

import subprocess
import sys

import pytest
from farandole.server.journal.tempdirs import make_tempdir

MAKE = """
import sys
from pathlib import Path
from farandole.server.journal.tempdirs import make_tempdir
print(make_tempdir("ipc", Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Another running process, and the temporary folder that it has created."""
    command = [sys.executable, "-c", MAKE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process, tmp_path / process.stdout.readline().strip()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_process(other, tmp_path):
    process, folder = other
    (folder / "kernel-1").touch()
    make_tempdir("record", tmp_path)
    assert make_tempdir("ipc", tmp_path).stat().st_mode & 0o777 == 0o700
    assert folder.is_dir()
    process.kill()
    process.wait()
    assert folder.is_dir()
    make_tempdir("record", tmp_path)
    assert folder.is_dir()
    make_tempdir("ipc", tmp_path)
    assert not folder.exists()


def test_a_process_removes_its_folder_when_it_ends(other):
    process, folder = other
    assert folder.is_dir()
    process.communicate("")
    assert not folder.exists()


def test_folders_with_similar_names_are_kept(tmp_path):
    (tmp_path / "farandole-ipc-mine").mkdir()
    (tmp_path / "farandole-ipc-0-1-elsewhere").mkdir()
    make_tempdir("ipc", tmp_path)
    assert (tmp_path / "farandole-ipc-mine").is_dir()
    assert (tmp_path / "farandole-ipc-0-1-elsewhere").is_dir()
