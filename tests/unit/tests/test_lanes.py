"""Tests that the lanes of `make test` include every test, and that a failed lane is reported."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spawner_config.settings import ROOT
from tests.lanes import ELSEWHERE, IDLE, LANES, Ended, lanes, run, worst


def test_each_lane_names_files_that_exist():
    paths = [argument.removeprefix("--ignore=") for arguments in lanes().values() for argument in arguments]
    assert [path for path in (*paths, *ELSEWHERE) if not Path(ROOT, path).exists()] == []


def test_the_integration_lane_runs_all_tests_of_no_other_lane():
    named = dict(lanes())
    root, *ignored = named.pop("integration")
    assert root == "tests"
    others = {path for paths in named.values() for path in paths}
    assert {path.removeprefix("--ignore=") for path in ignored} == others | {*ELSEWHERE}


@pytest.mark.parametrize(("given", "most", "beside"), [(None, LANES, [IDLE]), ("2", 2, [IDLE]), ("1", 1, [])])
def test_the_number_of_lanes_that_run_at_the_same_time_is_limited(monkeypatch, given, most, beside):
    pools = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, count):
            super().__init__(count)
            self.count, self.names = count, []
            pools.append(self)

        def submit(self, work, name, arguments):
            self.names.append(name)
            return super().submit(work, name, arguments)

    monkeypatch.delenv("LANES", raising=False)
    if given:
        monkeypatch.setenv("LANES", given)
    monkeypatch.setattr("tests.lanes.ThreadPoolExecutor", Pool)
    monkeypatch.setattr("tests.lanes.run_lane", lambda name, _arguments: Ended(name, 0, b"", 0.0))
    assert run([]) == 0
    assert [pool.count for pool in pools] == [most, 1]
    assert pools[1].names == beside
    assert pools[0].names == [name for name in lanes() if name not in beside]


@pytest.mark.parametrize(
    ("statuses", "together"), [([0, 0], 0), ([0, 5], 0), ([5, 5], 5), ([0, 1, 5], 1), ([0, 2], 2), ([0, -9], -9)]
)
def test_one_failed_lane_fails_all(statuses, together):
    assert worst(statuses) == together


def test_a_failed_lane_repeats_the_lines_that_name_the_failed_tests(capsys):
    ended = Ended("unit", 1, b"a traceback\n" * 30 + b"FAILED tests/unit/test_a.py::test_b\n", 2.0)
    ended.show_end()
    said = capsys.readouterr().out
    assert "--- lane unit ended with status 1:\n" in said
    assert said.endswith("a traceback\nFAILED tests/unit/test_a.py::test_b\n")
    assert len(said.splitlines()) < 30
    assert [Ended("unit", status, b"", 0.0).failed for status in (0, 5, 1, 3)] == [False, False, True, True]
