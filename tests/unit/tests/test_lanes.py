"""The lanes of `make test` include every test."""

from pathlib import Path

import pytest

from spawner_config.settings import ROOT
from tests.lanes import ELSEWHERE, lanes, worst


def test_each_lane_names_files_that_exist():
    paths = [argument.removeprefix("--ignore=") for arguments in lanes().values() for argument in arguments]
    assert [path for path in (*paths, *ELSEWHERE) if not Path(ROOT, path).exists()] == []


def test_the_last_lane_runs_all_tests_of_no_other_lane():
    *named, (root, *ignored) = lanes().values()
    assert root == "tests"
    assert {path.removeprefix("--ignore=") for path in ignored} == {path for paths in named for path in paths} | {
        *ELSEWHERE
    }


@pytest.mark.parametrize(
    ("statuses", "together"), [([0, 0], 0), ([0, 5], 0), ([5, 5], 5), ([0, 1, 5], 1), ([0, 2], 2), ([0, -9], -9)]
)
def test_one_failed_lane_fails_all(statuses, together):
    assert worst(statuses) == together
