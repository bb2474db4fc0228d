"""Fixtures for all tests. A failed test shows its logs, and a skipped test makes the test run fail.

Only tests with the marker `outside` may be skipped.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import sync_playwright

from tests.failures import attach
from tests.full_homes import SIZE
from tests.hub import LIMITED_USER, METRICS_TOKEN, RunningHub, run_hub
from tests.variables import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

# Keep Chromium from contacting Google's services and from using a proxy for the hub. The certificates of the tests are
# not verified. Playwright's `ignore_https_errors` is not enough, because it does not apply to service workers.
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--ignore-certificate-errors",
]


def pytest_sessionstart() -> None:
    # Set the variables for local processes. `with_variables` sets them for the servers of a hub.
    os.environ.update(VARIABLES)
    # Hubs of tests take automatic snapshots only for the tests of these.
    os.environ["FARANDOLE_SNAPSHOTS_MINUTES"] = "off"
    # Without this, a login of the developer would be used for a real hub.
    os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="farandole-test-config-")
    atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
    # A shell starts background processes with SIGINT ignored, which tests that press Ctrl-C would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    # Each IPython shell runs a full garbage collection when the process exits. The unit tests create more than a
    # hundred, and without this line the collections take minutes. The garbage collector ignores frozen objects.
    atexit.register(gc.freeze)


@pytest.fixture
def set_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A function that sets the time zone of this process until the test ends."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """Run a hub with the repository's profiles, on which the home of `LIMITED_USER` has a limit."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FARANDOLE_HOME_SIZE", f"{LIMITED_USER}: {SIZE}")
            running = stack.enter_context(run_hub(tmp_path_factory.mktemp("hub")))
        yield running


@pytest.fixture(scope="session")
def operators_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """Run a hub on which olga and otto are operators. No other tests start servers on it, so servers can be counted."""
    with ExitStack() as stack:
        # Other hubs of this session must not have these operators, so the variables are set only while this hub starts.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FARANDOLE_OPERATORS", "olga, otto")
            patch.setenv("FARANDOLE_METRICS_TOKEN", METRICS_TOKEN)
            running = stack.enter_context(run_hub(tmp_path_factory.mktemp("operators")))
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium browser for one module. Its event loop uses this thread, so the module cannot contain async tests."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "the browser tests need chromium; `make test` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, RunningHub):
                attach(report, f"logs of {name}", value.logs)
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reports = reporter.stats.get("skipped", []) if reporter else []
    skipped = [report for report in reports if "outside" not in getattr(report, "keywords", ())]
    if skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\n{len(skipped)} tests were skipped: every test must run.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
