"""Tests that Prometheus reads the hub's metrics, and that it understands and has all that Grafana's dashboard shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hub.process import wait_until
from tests.hub import RunningHub, run_hub
from tests.prometheus import METRIC, Prometheus, expressions, prometheus_of

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "0123456789abcdef" * 4
SCRAPE_SECONDS = 90.0
JOBS = {("farandole",): 1.0, ("jupyterhub",): 1.0}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with a notebook server of ada. It has one origin, since Prometheus does not resolve hub.localhost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FARANDOLE_METRICS_TOKEN", TOKEN)
        with run_hub(tmp_path_factory.mktemp("metrics"), one_origin=True) as running:
            running.start_notebook("ada")
            yield running


@pytest.fixture(scope="module")
def prometheus(hub: RunningHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has read the metrics of the hub and of the operators' service."""
    with prometheus_of(hub, tmp_path_factory.mktemp("prometheus"), TOKEN) as running:
        try:
            wait_until(lambda: running.query("up") == JOBS, SCRAPE_SECONDS)
        except TimeoutError:
            targets = running.ask("targets")["activeTargets"]
            pytest.fail(f"not read: {[(each['scrapeUrl'], each['lastError']) for each in targets]}")
        yield running


def test_prometheus_reads_who_uses_what(prometheus: Prometheus) -> None:
    assert prometheus.query("farandole_users_active") == {("farandole",): 1.0}
    assert prometheus.query("farandole_servers") == {("farandole", "notebook", "cpu", "running"): 1.0}
    [idle] = prometheus.query("farandole_server_idle_seconds").items()
    assert idle[0] == ("farandole", "ada")
    assert idle[1] >= 0
    assert prometheus.query("sum(farandole_memory_used_bytes)")[()] > 0


@pytest.mark.parametrize("expression", expressions())
def test_prometheus_understands_every_expression_of_the_dashboard(prometheus: Prometheus, expression: str) -> None:
    prometheus.query(expression)


def test_the_dashboard_and_the_service_name_the_same_metrics(prometheus: Prometheus) -> None:
    known = set(prometheus.ask("metadata"))
    used = {name for expression in expressions() for name in METRIC.findall(expression)}
    families = {re.sub("_(?:bucket|count)$", "", name) if name.startswith("jupyterhub_") else name for name in used}
    assert families - known == set()
    assert {name for name in known if name.startswith("farandole_")} <= used
