"""Tests for the use of a home: what counts, when the user is warned, and what the sentences say."""

from __future__ import annotations

import json
import os

import pytest
from farandole.quotas.home import LIMIT, RECORD, HomeUse, Measurement, read_use, use_of

GIB = 2**30
RUNS = (("farandole/runs", 7 * GIB), ("data", GIB))


def measured(used, largest=()):
    return Measurement(used=used, time=1.0, seconds=0.1, largest=largest)


@pytest.mark.parametrize("limit", [{}, {LIMIT: ""}, {LIMIT: "10G"}, {LIMIT: "0"}, {LIMIT: "-5"}, {LIMIT: "²"}])
def test_without_a_limit_there_is_nothing_to_show(tmp_path, limit):
    assert read_use(limit, tmp_path) is None


def test_a_home_that_is_not_measured_yet_has_a_limit(tmp_path):
    use = read_use({LIMIT: str(2**20)}, tmp_path)
    assert (use.used, use.limit, use.free) == (None, 2**20, 2**20)
    assert use.text == "limit 1 MiB, 1 MiB free"


def test_a_measured_home_has_what_is_left_of_the_limit(tmp_path):
    use = use_of(tmp_path, 64 * 2**20, measured(24 * 2**20))
    assert (use.used, use.free, use.warning) == (24 * 2**20, 40 * 2**20, "")
    assert use.text == "24 MiB of 64 MiB used, 40 MiB free"


def test_a_file_system_that_is_no_larger_than_the_limit_answers_itself(tmp_path):
    disk = os.statvfs(tmp_path)
    use = use_of(tmp_path, disk.f_blocks * disk.f_frsize, measured(5))
    assert use.used > 5
    assert use.limit == use.used + use.free


def test_a_disk_with_less_room_than_the_limit_counts(tmp_path):
    disk = os.statvfs(tmp_path)
    # A little less than the whole disk, so that the home does not count as a file system of its own.
    use = use_of(tmp_path, int(disk.f_blocks * disk.f_frsize * 0.9), measured(0))
    assert use.free <= disk.f_bavail * disk.f_frsize + 2**30


def test_a_home_that_is_nearly_full_is_a_warning():
    use = HomeUse(used=int(9.1 * GIB), limit=10 * GIB, free=int(0.9 * GIB), largest=RUNS)
    assert (use.is_nearly_full, use.is_full) == (True, False)
    assert use.warning == (
        "Your home is nearly full (9.1 GiB of 10.0 GiB used, 922 MiB free). New runs are refused when it is full. What "
        "takes most: ~/farandole/runs 7.0 GiB, ~/data 1.0 GiB. Delete files that you no longer need, such as old runs "
        "in the panel, or ask the administrator for a larger home."
    )


def test_a_full_home_says_so():
    use = HomeUse(used=12 * GIB, limit=10 * GIB, free=0)
    assert (use.is_nearly_full, use.is_full) == (True, True)
    assert use.warning.startswith("Your home is full (12.0 GiB of 10.0 GiB used, 0 B free), so new runs are refused. D")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"used": "5", "time": 1, "seconds": 1, "largest": {}}',
        '{"used": true, "time": 1, "seconds": 1, "largest": {}}',
        '{"used": -5, "time": 1, "seconds": 1, "largest": {}}',
        '{"used": 5, "time": NaN, "seconds": 1, "largest": {}}',
        '{"used": 5, "time": 1, "seconds": null, "largest": {}}',
        '{"used": 5, "time": 1, "seconds": 1, "largest": []}',
        '{"used": 5, "time": 1, "seconds": 1, "largest": {"a": "b"}}',
    ],
)
def test_a_damaged_record_is_no_measurement(tmp_path, text):
    path = tmp_path / RECORD
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert Measurement.read(tmp_path) is None
    assert read_use({LIMIT: str(2**20)}, tmp_path).used is None


def test_a_record_names_only_some_folders_and_nothing_unprintable(tmp_path):
    path = tmp_path / RECORD
    path.parent.mkdir(parents=True)
    largest = {"a\x1b[31m": 5, "b": 4, "c": 3, "d": 2}
    path.write_text(json.dumps({"used": 9, "time": 1.5, "seconds": 0.5, "largest": largest}))
    found = Measurement.read(tmp_path)
    assert found == Measurement(used=9, time=1.5, seconds=0.5, largest=(("a?[31m", 5), ("b", 4), ("c", 3)))
