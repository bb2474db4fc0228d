"""Tests for the decision whether a run may begin."""

from __future__ import annotations

import json
import os
import time

import pytest
from farandole.exceptions import UsageError
from farandole.quotas.admission import admitted, current_use
from farandole.quotas.home import LIMIT, RECORD
from farandole.quotas.measure import measure

MIB = 2**20
TEN = {LIMIT: str(10 * MIB)}


def record(home, used, *, seconds=0.1):
    path = home / RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"used": used, "time": time.time(), "seconds": seconds, "largest": {}}))


def fill(home, size):
    (home / "big").write_bytes(os.urandom(size))


def test_without_a_limit_every_run_begins(tmp_path):
    assert current_use({}, tmp_path) is None
    assert admitted(None) == ""


def test_a_home_that_was_never_measured_is_measured(tmp_path):
    fill(tmp_path, MIB)
    assert MIB <= current_use(TEN, tmp_path).used < 2 * MIB


def test_a_home_that_is_quickly_measured_is_measured_again(tmp_path):
    record(tmp_path, MIB)
    fill(tmp_path, 11 * MIB)
    said = r"your home is full \(11 MiB of 10 MiB used, 0 B free\). What takes most: ~/big 11 MiB"
    with pytest.raises(UsageError, match=said):
        admitted(current_use(TEN, tmp_path))


def test_the_last_measurement_of_a_home_that_takes_long_counts(tmp_path):
    record(tmp_path, MIB, seconds=5.0)
    fill(tmp_path, 11 * MIB)
    assert current_use(TEN, tmp_path).used == MIB


@pytest.mark.parametrize("seconds", [0.1, 5.0])
def test_no_run_is_refused_after_the_user_has_deleted_files(tmp_path, seconds):
    record(tmp_path, 11 * MIB, seconds=seconds)
    assert admitted(current_use(TEN, tmp_path)) == ""


def test_a_measurement_that_takes_too_long_leaves_the_last_one(tmp_path):
    record(tmp_path, 11 * MIB)
    assert current_use(TEN, tmp_path, wait=0.0001).used == 11 * MIB


def test_a_run_in_a_home_that_is_nearly_full_begins_with_a_warning(tmp_path):
    fill(tmp_path, int(9.5 * MIB) - 2**18)
    measure(tmp_path)
    limit = {LIMIT: str(20 * MIB)}
    assert admitted(current_use(limit, tmp_path)) == ""
    fill(tmp_path, int(18.5 * MIB))
    measure(tmp_path)
    assert admitted(current_use(limit, tmp_path)).startswith("Your home is nearly full (")
