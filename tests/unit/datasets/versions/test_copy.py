"""Tests for copies of folders that change, or that do not fit. The other tests are in test_manifest.py."""

import os
import signal
import subprocess
import sys
import tracemalloc

import pytest
from farandole.datasets.versions import copy
from farandole.datasets.versions import incomplete as module
from farandole.datasets.versions.copy import copy_version
from farandole.datasets.versions.incomplete import incomplete
from farandole.datasets.versions.manifest import MANIFEST, PART, verify
from farandole.exceptions import DataSetError, UsageError
from farandole.reading import open_regular

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


class Growing:
    """A file that grows as fast as it is read."""

    def __init__(self, folder, name):
        self._path, self._file, self._left = folder / name, open_regular(folder, name), 5

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def fileno(self):
        return self._file.fileno()

    def read(self, size):
        self._left -= 1
        assert self._left, "the file is read forever"
        with self._path.open("ab") as file:
            file.write(b"x" * size)
        return self._file.read(size)


def test_a_file_that_grows_is_not_read_forever(source, target, monkeypatch):
    monkeypatch.setattr(copy, "open_regular", Growing)
    with pytest.raises(DataSetError, match="'a.txt' in .* changed while it was copied"):
        copy_version(source, target)
    assert left_in(target) == ["lost+found"]


def test_a_million_files_fit_into_the_memory_of_the_hubs_helper(source, target, monkeypatch):
    """The helper has 1 GiB, and the limit for each file leaves room for Python itself."""
    monkeypatch.setattr(copy, "CHUNK", 1000)
    for number in range(1000):
        (source / f"{number:030}").touch()
    tracemalloc.start()
    try:
        copy_version(source, target)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most / 1000 < 550


def test_another_process_that_writes_there_is_not_disturbed(source, target):
    with incomplete(target):
        (target / "theirs.txt").write_text("")
        with pytest.raises(DataSetError, match="another process writes a version to .*; try again when it is done"):
            copy_version(source, target)
        assert left_in(target) == [PART, "lost+found", "theirs.txt"]


def test_a_version_that_another_process_has_completed_meanwhile_is_not_replaced(source, target, monkeypatch):
    open_part = module._open_part

    def late(folder):
        monkeypatch.setattr(module, "_open_part", open_part)
        copy_version(source, folder)
        folder.chmod(0o755)
        return open_part(folder)

    monkeypatch.setattr(module, "_open_part", late)
    with pytest.raises(UsageError, match="never replaced"):
        copy_version(source, target)
    verify(target)
    assert left_in(target) == [MANIFEST, "a.txt", "lost+found", "train"]


def test_what_a_killed_copy_has_left_is_deleted_and_other_files_are_not(source, target):
    (target / "old.txt").write_text("")
    with pytest.raises(UsageError, match=r"is not empty: it has 'old\.txt'"):
        copy_version(source, target)
    (target / PART).touch(0o444)
    copy_version(source, target)
    assert left_in(target) == [MANIFEST, "a.txt", "lost+found", "train"]


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
