"""Runs some of Horovod's own tests in a rank. The tests use the world that the rank has, or form one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest import mock

import horovod.torch as hvd
import pytest


class Outcomes:
    """A plugin of pytest that records the outcome of each test, by its name."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.found[report.nodeid.rpartition("::")[2]] = report.outcome


def outcomes(path: str, tests: list[str]) -> dict[str, str]:
    """Run these tests of the file at ``path``, and return the outcome of each: passed, failed or skipped."""
    # Horovod's tests import the backport of a module of the standard library.
    sys.modules.setdefault("mock", mock)
    sys.dont_write_bytecode = True
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ.pop("PYTEST_ADDOPTS", None)
    plugin = Outcomes()
    options = ["-q", "-s", "--tb=short", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    options += ["-c", os.devnull, "--rootdir", str(Path(path).parent)]
    # Each test shuts Horovod down. Horovod sometimes aborts the process if it is initialized again and again.
    with mock.patch.object(hvd, "shutdown"):
        pytest.main([*options, *(f"{path}::TorchTests::{test}" for test in tests)], plugins=[plugin])
    return plugin.found
