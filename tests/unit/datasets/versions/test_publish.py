"""Tests for `publish`, which makes the next version of a data set."""

import fcntl
import os
import signal
import subprocess
import sys

import pytest
from farandole.datasets.versions.manifest import verify
from farandole.datasets.versions.publish import PUBLISH_TO, publish
from farandole.exceptions import DataSetError, UsageError

PUBLISH = "import sys, pathlib; from farandole.datasets.versions import publish; "
PUBLISH += "publish.publish(pathlib.Path(sys.argv[1]), 'digits')"
PUBLISH_AND_DIE = """
import os, pathlib, signal, sys
from farandole.datasets.versions import copy, publish
left, copy_file = [int(sys.argv[2])], copy._copy_file
def dying(*arguments):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return copy_file(*arguments)
copy._copy_file = dying
publish.publish(pathlib.Path(sys.argv[1]), "digits")
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The folder of the hub's data sets."""
    monkeypatch.setenv(PUBLISH_TO, str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def source(tmp_path):
    """A folder to publish."""
    (tmp_path / "source" / "train").mkdir(parents=True)
    (tmp_path / "source" / "train" / "a.txt").write_text("1")
    return tmp_path / "source"


def names_in(folder):
    return [path.name for path in folder.iterdir()]


def test_each_publication_is_the_next_version(store, source):
    first = publish(source, "digits")
    (source / "train" / "a.txt").write_text("2")
    second = publish(source, "digits")
    assert (str(first.version), str(second.version)) == ("digits@1", "digits@2")
    assert verify(store / "digits" / "1") == first.copied.digest != second.copied.digest
    assert (store / "digits" / "1" / "train" / "a.txt").read_text() == "1"


def test_the_same_content_is_not_published_twice(store, source):
    publish(source, "digits")
    with pytest.raises(UsageError, match="same files as digits@1"):
        publish(source, "digits")
    assert names_in(store / "digits") == ["1"]


def test_a_folder_that_is_no_version_yet_keeps_its_number(store, source):
    (store / "digits" / "1").mkdir(parents=True)
    assert str(publish(source, "digits").version) == "digits@2"
    assert names_in(store / "digits" / "1") == []


@pytest.mark.parametrize("name", ["digits@1", "../digits", "Digits", "", "a" * 41])
def test_an_invalid_name_is_refused(store, source, name):
    with pytest.raises(UsageError, match=r"leave out the version|cannot be the name"):
        publish(source, name)
    assert not store.exists()


def test_a_missing_folder_is_named(store, tmp_path):
    with pytest.raises(UsageError, match="there is no folder '.*nowhere'"):
        publish(tmp_path / "nowhere", "digits")


def test_only_publishers_publish(source, monkeypatch):
    monkeypatch.delenv(PUBLISH_TO, raising=False)
    with pytest.raises(UsageError, match="FARANDOLE_DATA_PUBLISHERS"):
        publish(source, "digits")


def test_what_a_killed_publication_left_is_deleted(store, source):
    left = store / "digits" / ".new-0123" / "train"
    left.mkdir(parents=True)
    (left / "a.txt").write_text("1")
    left.chmod(0o555)
    publish(source, "digits")
    assert names_in(store / "digits") == ["1"]


@pytest.mark.parametrize("moment", range(8))
def test_a_kill_leaves_whole_versions_only(store, source, moment):
    """The moments are spread over the copying of the files. The next publication deletes what is left."""
    for number in range(300):
        (source / f"{number}.txt").write_text(str(moment))
    published = publish(source, "digits").copied.digest
    (source / "0.txt").write_text("other")
    child = subprocess.Popen([sys.executable, "-c", PUBLISH_AND_DIE, source, str(moment * 40)])
    assert child.wait(30) == -signal.SIGKILL
    assert [name for name in names_in(store / "digits") if not name.startswith(".")] == ["1"]
    assert verify(store / "digits" / "1") == published
    assert str(publish(source, "digits").version) == "digits@2"
    assert sorted(names_in(store / "digits")) == ["1", "2"]


def test_a_full_disk_leaves_nothing(store, source):
    (source / "large.bin").write_bytes(b"x" * 2_000_000)
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); {PUBLISH}"
    done = subprocess.run([sys.executable, "-c", limited, source], capture_output=True, text=True, check=False)
    assert "DataSetError" in done.stderr
    assert "File too large" in done.stderr
    assert names_in(store / "digits") == []


def test_a_second_publication_at_the_same_time_is_refused(store, source):
    (store / "digits").mkdir(parents=True)
    descriptor = os.open(store / "digits", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(DataSetError, match="is being published"):
        publish(source, "digits")
    os.close(descriptor)


def test_a_failed_publication_leaves_nothing(store, source):
    (source / "link").symlink_to("train")
    with pytest.raises(UsageError, match="'link'"):
        publish(source, "digits")
    assert names_in(store / "digits") == []
