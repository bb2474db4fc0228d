"""Tests for measurements with the real program du."""

from __future__ import annotations

import os

import pytest
from farandole.quotas.home import RECORD, Measurement
from farandole.quotas.measure import MeasureError, largest_parts, measure

MIB = 2**20


def write(path, size=MIB):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


def test_blocks_count_and_hard_links_once(tmp_path):
    os.link(write(tmp_path / "data" / "first"), tmp_path / "second")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(100 * MIB)
    found = measure(tmp_path)
    assert MIB <= found.used < 1.5 * MIB
    assert MIB <= dict(found.largest)["data"] < 1.5 * MIB


def test_the_record_is_for_other_processes(tmp_path):
    write(tmp_path / "a")
    found = measure(tmp_path)
    assert Measurement.read(tmp_path) == found


def test_names_may_contain_anything(tmp_path):
    write(tmp_path / "a\nb\tc" / "d", 2 * MIB)
    write(tmp_path / os.fsdecode(b"\xff") / "e")
    assert [path for path, _ in measure(tmp_path).largest] == ["a\nb\tc", "\udcff"]


def test_an_empty_home_takes_little(tmp_path):
    found = measure(tmp_path)
    assert (found.used < MIB, found.largest) == (True, ())


def test_a_large_file_of_the_home_itself_is_named(tmp_path):
    write(tmp_path / "big.bin")
    write(tmp_path / "data" / "small", 4096)
    (tmp_path / "link").symlink_to("big.bin")
    assert [path for path, _ in measure(tmp_path).largest] == ["big.bin", "data"]


def test_a_record_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / RECORD.partition("/")[0]).write_text("no folder")
    assert measure(tmp_path).used > 0


def test_the_deepest_folder_with_most_of_it_is_named():
    sizes = {
        ".local": 100,
        ".local/share": 99,
        ".local/share/Trash": 98,
        "farandole": 50,
        "farandole/runs": 26,
        "farandole/models": 24,
        "data": 10,
        "data/digits": 10,
        "notes": 1,
    }
    assert largest_parts(sizes) == ((".local/share/Trash", 98), ("farandole", 50), ("data/digits", 10))


def test_a_machine_without_du_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="the program du cannot be run"):
        measure(tmp_path)


def test_a_home_that_does_not_exist_cannot_be_measured(tmp_path):
    with pytest.raises(MeasureError, match="the program du ended with code 1"):
        measure(tmp_path / "missing")


def test_a_measurement_has_a_deadline(tmp_path):
    with pytest.raises(MeasureError, match="took more than 0 s"):
        measure(tmp_path, seconds=0.0001)
