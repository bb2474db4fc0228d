"""One hub in containers for the tests of a session; those that break it run their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.docker.stack import Stack, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("stack"), subnets="10.214.0.0/20") as stack:
        yield stack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    stack = getattr(item, "funcargs", {}).get("stack")
    if report.failed and stack is not None:
        report.sections.append(("containers", stack.logs()))
    return report
