"""Tests for who uses what, the metrics of it, and the dashboard that shows them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jupyterhub.metrics
import pytest
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families

from hub.services.operators.measures import Homes, disk_use
from hub.services.operators.metrics import UsageCollector, exposition
from hub.services.operators.usage import Measures, User, users_of
from spawner_config.operators.site import Site, Size
from spawner_config.settings import ROOT

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
SITE = Site(
    state=Path("/srv/farandole"),
    profiles={"cpu": Size(ranks=1, gpus=0, memory=4 << 30), "gpu": Size(ranks=2, gpus=1, memory=8 << 30)},
    limits={"workers_per_user": 16, "notebooks_per_user": 3, "ranks_per_worker": 8},
    local=True,
)
GPUS = {"a100": {"total": 4, "free": 1, "held": {"ada": 3}, "waiting": 2}}
DASHBOARD = ROOT / "docs" / "how-to" / "monitoring" / "farandole.json"
METRIC = re.compile(r"\b(?:farandole|jupyterhub)_[a-z_]+")


def server(name: str, *, minutes: float = 0, **options: Any) -> dict[str, Any]:
    time = (NOW - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    usual = {"pending": None, "ready": True, "stopped": False, "user_options": {}}
    return {"name": name, "last_activity": time, "started": time, **usual, **options}


def model(name: str, *servers: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "last_activity": None, "servers": {each["name"]: each for each in servers}}


@pytest.fixture
def users() -> list[User]:
    models = [
        model("bob"),
        model(
            "grace",
            server("", minutes=90, user_options={"profile": "gone"}),
            server("old", stopped=True, ready=False),
        ),
        model(
            "ada",
            server("", minutes=5),
            server("main-w1", user_options={"profile": "gpu", "ranks": 4}, pending="stop"),
            server("main-w0", user_options={"profile": "gpu"}, ready=False, pending="spawn"),
        ),
    ]
    measures = Measures(memory={("ada", ""): 1 << 30}, homes={"ada": 5000, "bob": 7})
    return users_of(models, SITE, measures, NOW)


def test_users_with_servers_come_first(users: list[User]) -> None:
    assert [user.name for user in users] == ["ada", "grace", "bob"]
    ada, grace, bob = users
    assert [each.name for each in ada.servers] == ["", "main-w0", "main-w1"]
    assert [each.state for each in ada.servers] == ["running", "starting", "stopping"]
    assert (ada.count("notebook"), ada.count("worker"), ada.ranks, ada.gpus) == (1, 2, 6, 2)
    assert (ada.memory_used, ada.memory_limit) == (1 << 30, 20 << 30)
    assert [each.idle for each in ada.servers] == [300, 0, 0]
    assert (bob.home, bob.memory_used, bob.memory_limit) == (7, None, None)
    assert [(each.profile, each.memory_limit) for each in grace.servers] == [("unknown", None)]


def scraped(users: list[User]) -> dict[str, Metric]:
    text = exposition(UsageCollector(users, GPUS, SITE.limits, total=7)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_metrics_count_servers_gpus_and_memory(users: list[User]) -> None:
    found = scraped(users)

    def value(name: str, **labels: str) -> float:
        [sample] = [each for each in found[f"farandole_{name}"].samples if each.labels == labels]
        return float(sample.value)

    assert value("servers", kind="worker", profile="gpu", state="starting") == 1
    assert value("users") == 7
    assert value("users_active") == 2
    assert value("ranks") == 6
    assert value("gpus", **{"class": "a100"}, state="held") == 3
    assert value("gpu_queue", **{"class": "a100"}) == 2
    assert value("memory_limit_bytes", kind="worker") == 16 << 30
    assert value("memory_used_bytes", kind="notebook") == 1 << 30
    assert value("server_idle_seconds", user="grace") == 5400
    assert value("limit", limit="workers_per_user") == 16
    assert value("home_bytes", user="ada") == 5000


def test_a_user_name_cannot_forge_a_metric() -> None:
    name = 'x"} 1\nfarandole_users 99\n'
    users = users_of([model(name, server(""))], SITE, Measures(memory={}, homes={}), NOW)
    found = scraped(users)
    assert [sample.value for sample in found["farandole_users"].samples] == [7]
    assert [sample.labels["user"] for sample in found["farandole_server_idle_seconds"].samples] == [name]


def test_the_dashboard_uses_only_metrics_that_exist(users: list[User]) -> None:
    ours = scraped(users).keys()
    metrics = [each for each in vars(jupyterhub.metrics).values() if isinstance(each, MetricWrapperBase)]
    hubs = {family.name for metric in metrics for family in metric.describe()}
    known = ours | hubs | {f"{name}{end}" for name in hubs for end in ("_bucket", "_sum", "_count", "_total")}
    used = set(METRIC.findall(DASHBOARD.read_text(encoding="utf-8")))
    assert used - known == set()
    # Each metric of the service is on the dashboard.
    assert ours - used == set()


def test_the_panels_of_the_dashboard_have_unique_ids_places_and_queries() -> None:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert (dashboard["id"], dashboard["uid"]) == (None, "farandole")
    assert dashboard["schemaVersion"] >= 39
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    [variable] = dashboard["templating"]["list"]
    assert (variable["type"], variable["name"], variable["query"]) == ("datasource", "datasource", "prometheus")


async def test_homes_are_measured_for_whom_a_page_asks_and_metrics_forget_no_others(tmp_path: Path) -> None:
    for user in ("ada", "grace"):
        (tmp_path / "homes" / user).mkdir(parents=True)
        (tmp_path / "homes" / user / "data").write_bytes(bytes(100_000))
    homes = Homes(tmp_path)
    for users in (["ada"], ["ada", "grace"], ["grace"]):
        assert set(homes.sizes(users)) < set(users) or users == ["grace"]
        assert homes._measuring is not None
        await homes._measuring
    assert homes.sizes(["ada", "grace", "eve"]).keys() == {"ada", "grace"}
    assert homes.sizes(["ada"])["ada"] >= 100_000


def test_the_disk_use_of_a_home_follows_no_links(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "below").mkdir(parents=True)
    (home / "below" / "data").write_bytes(bytes(100_000))
    elsewhere.write_bytes(bytes(1_000_000))
    (home / "link").symlink_to(elsewhere)
    assert 100_000 <= disk_use(home) < 200_000
    assert disk_use(tmp_path / "none") == 0
