"""Copies of tables in the cache: made once, by one process, as a whole, and again after a change."""

import errno
import os
import resource
import subprocess
import sys
import time

import farandole as fd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from farandole.datasets import contents, disk
from farandole.exceptions import UsageError

DAY = 24 * 3600
COPY = """
import sys, farandole as fd
sys.stdin.readline()
print(len(fd.dataset(sys.argv[1])), flush=True)
"""


def write(path, rows=1000, value=1.0):
    pq.write_table(pa.table({"x": [value] * rows, "y": range(rows)}), path, row_group_size=100)
    return path


def copies(cache):
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_a_table_is_copied_once_for_each_selection_of_columns(tmp_path, cache):
    path = write(tmp_path / "x.parquet")
    fd.dataset(path)
    assert cache.stat().st_mode & 0o777 == 0o700
    [name] = copies(cache)
    made = (cache / name).stat().st_ino
    fd.dataset(path)
    assert (cache / name).stat().st_ino == made
    fd.dataset(path, ["y"])
    assert len(copies(cache)) == 2


def age(path):
    """Let a copy have been opened for the last time two days ago."""
    os.utime(path, (time.time() - 2 * DAY, time.time() - 2 * DAY))


def test_after_a_change_the_new_copy_replaces_an_old_one_that_nobody_opens(tmp_path, cache):
    path = write(tmp_path / "x.parquet")
    old = fd.dataset(path)
    [name] = copies(cache)
    (cache / f".new-{name}-0a1b2c3d").touch()  # a process was killed
    age(cache / name)
    write(path, 500, value=2.0)
    new = fd.dataset(path)
    assert len(copies(cache)) == 1
    assert (new[0]["x"], old[999]["x"]) == (2.0, 1.0)


def test_a_copy_that_others_have_opened_within_a_day_stays_after_a_change(tmp_path, cache):
    path = write(tmp_path / "x.parquet")
    data = fd.dataset(path)
    [name] = copies(cache)
    age(cache / name)
    fd.dataset(path)
    write(path, 500)
    assert len(fd.dataset(path)) == 500
    assert len(copies(cache)) == 2
    assert (cache / name).exists()
    assert len(data) == 1000


def test_a_copy_on_a_disk_that_cannot_be_written_is_used(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "x.parquet")
    fd.dataset(path)
    [name] = copies(cache)
    age(cache / name)

    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert len(fd.dataset(path)) == 1000


def test_the_copy_has_few_record_batches_within_a_size(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "x.parquet")
    fd.dataset(path)
    monkeypatch.setattr(contents, "BATCH_BYTES", 4000)
    fd.dataset(path, ["y"])
    counts = [pa.ipc.open_file(pa.memory_map(str(cache / name))).num_record_batches for name in copies(cache)]
    assert sorted(counts) == [1, 2]


def test_processes_at_the_same_time_make_one_copy(tmp_path, cache):
    path = write(tmp_path / "x.parquet", 50_000)
    command = [sys.executable, "-c", COPY, str(path)]
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    ranks = [subprocess.Popen(command, **pipe) for _ in range(3)]
    for rank in ranks:
        rank.stdin.write("go\n")
        rank.stdin.flush()
    assert [rank.communicate(timeout=60)[0] for rank in ranks] == ["50000\n"] * 3
    assert len(copies(cache)) == 1


def test_a_full_disk_leaves_nothing(tmp_path, cache):
    path = write(tmp_path / "x.parquet", 50_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"x\.parquet cannot be copied to .*: File too large\. Make space there"):
            fd.dataset(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert copies(cache) == []
    assert len(fd.dataset(path)) == 50_000


def test_a_file_that_breaks_off_leaves_nothing(tmp_path, cache):
    for part in range(2):
        write(tmp_path / f"{part}.parquet")
    content = bytearray((tmp_path / "1.parquet").read_bytes())
    content[4:600] = bytes(596)
    (tmp_path / "1.parquet").write_bytes(content)
    with pytest.raises(UsageError, match=r"1\.parquet cannot be read: .*Write the file again"):
        fd.dataset(tmp_path)
    assert copies(cache) == []


def test_a_disk_without_locks_has_copies_as_well(tmp_path, cache, monkeypatch):
    def refuse(_file, _how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(disk.fcntl, "flock", refuse)
    path = write(tmp_path / "x.parquet")
    assert len(fd.dataset(path)) == 1000
    write(path, 500)
    assert len(fd.dataset(path)) == 500
    # Another process may still need the earlier copy.
    assert len(copies(cache)) == 2


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot be copied to .*: Not a directory.*XDG_CACHE_HOME"):
        fd.dataset(write(tmp_path / "x.parquet"))


def test_the_cache_is_in_the_home_without_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    fd.dataset(write(tmp_path / "x.parquet"))
    assert list((tmp_path / ".cache" / "farandole" / "datasets").glob("*.arrow"))
