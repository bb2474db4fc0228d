"""Fixtures for browser tests. Each test gets a new page, and a failed test saves a screenshot of its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.lab import DESKTOP, Lab, shoot_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.hub import RunningHub


@pytest.fixture
def lab(hub: RunningHub, chromium: Browser) -> Iterator[Lab]:
    with chromium.new_context(viewport=DESKTOP) as context:
        context.set_default_timeout(60_000)
        yield Lab(hub, context.new_page())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    shoot_failure(item, report)
    return report
