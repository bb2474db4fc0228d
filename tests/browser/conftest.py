"""Fixtures for browser tests. Each test gets a new page, and a failed test saves a screenshot of its page."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import requests

from tests.browser.lab import DESKTOP, Lab, shoot_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.hub import RunningHub


@pytest.fixture
def lab(hub: RunningHub, chromium: Browser) -> Iterator[Lab]:
    with chromium.new_context(viewport=DESKTOP) as context:
        context.set_default_timeout(60_000)
        lab = Lab(hub, context.new_page())
        yield lab
    # Idle clusters of earlier tests would use processor time.
    for user in lab.users:
        stop_servers(hub, user)


def stop_servers(hub: RunningHub, user: str) -> None:
    """Stop the user's notebook server, and with it all workers, if the user logs in with the common password."""
    with suppress(requests.RequestException, AssertionError):
        hub.api(hub.token_for(user, ["self"]), "DELETE", f"/hub/api/users/{user}/server")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    shoot_failure(item, report)
    return report
