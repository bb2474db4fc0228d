"""Fixtures that the Kubernetes tests share: one cluster with one hub. Each test repairs what it breaks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hub.process import wait_until
from tests.browser.lab import Lab, shoot_failure
from tests.docker.remote_lab import administrators_lab
from tests.failures import attach
from tests.kubernetes.node import one_node
from tests.kubernetes.node.one_node import NODE
from tests.kubernetes.site import GPU, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.kubernetes.node.one_node import OneNode

HERE = Path(__file__).parent
COUNT_SECONDS = 60
TIMEOUT_SECONDS = 900
"""Time limit for a test in seconds. It includes starting the cluster but not building its programs, because `make
test-kubernetes` builds them first."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def node() -> Iterator[OneNode]:
    with one_node.running() as node:
        yield node


@pytest.fixture(scope="session")
def site(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Install a hub on the cluster and return the hub. It is removed together with the cluster at the end."""
    site = Site(node, tmp_path_factory.mktemp("site"))
    try:
        site.install()
    except BaseException:
        print(f"{site.describe()}\n{node.logs()}")
        raise
    return site


@pytest.fixture(autouse=True)
def no_workers_left(site: Site) -> Iterator[None]:
    """Delete all worker pods after each test, because a failed test may have left some."""
    yield
    site.kubectl("delete", "pods", "--selector=farandole.cluster")


@pytest.fixture
def gpus(site: Site) -> Iterator[None]:
    """Add two GPUs to the node's status. The scheduler counts them, although no program can use them."""
    site.node.patch_status(capacity={GPU: "2"})
    wait_until(lambda: site.get("node", NODE)["status"]["allocatable"].get(GPU) == "2", COUNT_SECONDS)
    yield
    site.node.patch_status(capacity={GPU: "0"})


@pytest.fixture
def lab(site: Site, chromium: Browser) -> Iterator[Lab]:
    with administrators_lab(site, chromium) as lab:
        yield lab


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    found = getattr(item, "funcargs", {})
    if report.failed and "site" in found:
        attach(report, "cluster", found["site"].describe)
    if report.failed and "node" in found:
        attach(report, "node", found["node"].logs)
    shoot_failure(item, report)
    return report
