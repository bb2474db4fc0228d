"""Tests that a skipped test makes the run fail, unless it needs files from outside the checkout."""

from types import SimpleNamespace

import pytest

from tests.conftest import pytest_sessionfinish


def status(*skipped):
    """Return the status of a run without failures in which tests with these markers were skipped."""
    reports = [SimpleNamespace(keywords=dict.fromkeys(markers, 1)) for markers in skipped]
    reporter = SimpleNamespace(stats={"skipped": reports}, write_line=lambda *_, **__: None)
    plugins = SimpleNamespace(get_plugin=lambda _name: reporter)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins), exitstatus=pytest.ExitCode.OK)
    pytest_sessionfinish(session, pytest.ExitCode.OK)
    return session.exitstatus


def test_a_skipped_test_makes_the_run_fail():
    assert status() == pytest.ExitCode.OK
    assert status({"release"}) == pytest.ExitCode.TESTS_FAILED
    assert status({"release", "outside"}, {"release"}) == pytest.ExitCode.TESTS_FAILED


def test_a_test_that_needs_files_from_outside_the_checkout_may_be_skipped():
    assert status({"release", "outside"}) == pytest.ExitCode.OK
