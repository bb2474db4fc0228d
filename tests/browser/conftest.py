"""Each test has a page of its own; one that fails leaves a picture of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.lab import Lab, shoot_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.hub import RunningHub


@pytest.fixture
def lab(hub: RunningHub, chromium: Browser) -> Iterator[Lab]:
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(60_000)
    yield Lab(hub, page)
    page.close()


@pytest.fixture
def picture() -> Path | None:
    """Where to put the picture of the README, if it is wanted."""
    wanted = os.environ.get("FARANDOLE_SCREENSHOT")
    return Path(wanted) if wanted else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    shoot_failure(item, report)
    return report
