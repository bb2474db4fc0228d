"""For the tests of a session: one hub in containers (those that break it run their own), and an engine with GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.docker.engines import gpus
from tests.docker.stack import Stack, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.engines.second import SecondEngine


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("stack"), subnets="10.214.0.0/20") as stack:
        yield stack


@pytest.fixture(scope="session")
def gpu_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondEngine]:
    """An engine that gives two stand-in GPUs, 0 and 1."""
    with gpus.gpu_engine(tmp_path_factory.mktemp("gpus")) as engine:
        yield engine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    for name, title in (("stack", "containers"), ("gpu_engine", "engine with GPUs")):
        found = getattr(item, "funcargs", {}).get(name)
        if report.failed and found is not None:
            report.sections.append((title, found.logs()))
    return report
