"""Tests for copies of folders that change, or that do not fit. The other tests are in test_manifest.py."""

import os
import signal
import subprocess
import sys

import pytest
from farandole.datasets.versions import copy
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.manifest import MANIFEST, PART, verify
from farandole.exceptions import DataSetError, UsageError

COPY = "import sys, pathlib; from farandole.datasets.versions.copy import copy_version; "
COPY += "copy_version(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))"
FULL = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); {COPY}"
DIE_BEFORE_THE_NAME = f"""
import os, pathlib, signal
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.rename = die
{COPY}
"""


@pytest.fixture
def source(tmp_path):
    """A folder with two files."""
    (tmp_path / "source" / "train").mkdir(parents=True)
    for name in ("a.txt", "train/b.txt"):
        (tmp_path / "source" / name).write_text(name)
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path):
    """An empty volume, as a new file system has it."""
    (tmp_path / "target" / "lost+found").mkdir(parents=True)
    return tmp_path / "target"


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda folder: (folder / "a.txt").write_text("A.TXT"), "a.txt"),
        (lambda folder: (folder / "new.txt").write_text(""), "new.txt"),
        (lambda folder: (folder / "train" / "b.txt").unlink(), "train/b.txt"),
        (lambda folder: (folder / "train" / "b.txt").rename(folder / "a.txt"), "train/b.txt"),
    ],
)
def test_a_source_that_changes_is_not_kept(source, target, monkeypatch, change, name):
    copied, copy_file = [], copy._copy_file

    def changing(*arguments):
        copied.append(copy_file(*arguments))
        if len(copied) == 2:
            change(source)
        return copied[-1]

    monkeypatch.setattr(copy, "_copy_file", changing)
    with pytest.raises(DataSetError, match=f"'{name}' in .* changed while it was copied, so nothing of it is kept"):
        copy_version(source, target)
    assert left_in(target) == ["lost+found"]


def test_a_link_that_appears_meanwhile_is_refused(source, target, monkeypatch):
    copy_file = copy._copy_file

    def changing(folder, path, *arguments):
        (source / "link").symlink_to("a.txt") if path == "a.txt" else None
        return copy_file(folder, path, *arguments)

    monkeypatch.setattr(copy, "_copy_file", changing)
    with pytest.raises(UsageError, match="'link'"):
        copy_version(source, target)
    assert left_in(target) == ["lost+found"]


def test_a_full_disk_leaves_an_empty_volume(source, target):
    (source / "large.bin").write_bytes(b"x" * 2_000_000)
    done = subprocess.run([sys.executable, "-c", FULL, source, target], capture_output=True, text=True, check=False)
    assert "File too large" in done.stderr
    assert left_in(target) == ["lost+found"]


def test_a_volume_is_a_version_only_with_the_whole_manifest(source, target):
    died = subprocess.run([sys.executable, "-c", DIE_BEFORE_THE_NAME, source, target], check=False)
    assert died.returncode == -signal.SIGKILL
    assert left_in(target) == [PART, "a.txt", "lost+found", "train"]
    with pytest.raises(DataSetError, match="is not a version"):
        verify(target)


def test_the_folder_of_a_volume_may_belong_to_root(source, target, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: target.stat().st_uid + 1)
    before = target.stat().st_mode
    assert copy_version(source, target).digest == verify(target)
    assert target.stat().st_mode == before
    assert (target / MANIFEST).stat().st_mode & 0o777 == 0o444
