"""Tests for the services in docker-compose.yml. The file is read as YAML, without `docker compose`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hub.engine_filter.rules import Rules
from spawner_config.origins.certificates import PATH
from spawner_config.origins.compose import DEFAULTS, HTTPS_PROFILES
from spawner_config.settings import ROOT
from spawner_config.snapshots.mirrors import MirrorSettings
from spawner_config.snapshots.record import service_folder
from spawner_config.snapshots.settings import SnapshotSettings, variables

SERVICES: dict[str, dict[str, Any]] = {
    name: service
    for name, service in yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"].items()
    if service.get("scale") != 0
}
OTHERS = {"caddy", "postgres", "registry"}
TRUSTED = {"caddy": {"NET_BIND_SERVICE"}, "postgres": {"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"}}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_health_check_and_minimal_rights(name: str) -> None:
    service = SERVICES[name]
    assert service["healthcheck"]["test"]
    assert service["restart"] == "unless-stopped"
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("cap_add", [])) == TRUSTED.get(name, set())
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_third_party_images_are_pinned_to_a_minor_version() -> None:
    images = {name: service["image"] for name, service in SERVICES.items() if "farandole" not in service["image"]}
    assert set(images) == OTHERS
    assert [image for image in images.values() if not re.fullmatch(r"[a-z]+:[0-9]+\.[0-9.]+", image)] == []


def default(text: str) -> str:
    """Return the value of a variable whose settings are all empty, as compose substitutes it."""
    while found := re.search(r"\$\{[A-Z_]+:-([^${}]*)\}", text):
        text = text.replace(found[0], found[1])
    return text


def test_the_engine_admits_the_images_of_all_servers() -> None:
    allowed = default(SERVICES["engine"]["environment"]["FARANDOLE_ALLOWED_IMAGES"])
    rules = Rules.from_environment({"FARANDOLE_ALLOWED_IMAGES": allowed})
    assert rules == Rules.from_environment({})
    images = {key: default(value) for key, value in SERVICES["hub"]["environment"].items() if key.endswith("_IMAGE")}
    assert images == {
        "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:0.1.0",
        "FARANDOLE_GPU_IMAGE": "farandole-notebook:0.1.0-cuda",
        "FARANDOLE_SERVING_IMAGE": "farandole-serving:0.1.0",
        "FARANDOLE_SERVING_TORCH_IMAGE": "farandole-serving:0.1.0-torch",
    }
    assert all(map(rules.admits_image, images.values()))


def test_the_hub_waits_for_its_dependencies_and_for_optional_ones_if_they_are_enabled() -> None:
    needs = SERVICES["hub"]["depends_on"]
    assert {need["condition"] for need in needs.values()} == {"service_healthy"}
    assert [name for name, need in needs.items() if not need.get("required", True)] == ["postgres", "streams"]


@pytest.mark.parametrize("name", ["engine", "proxy", "hub", "tls", "caddy", "postgres", "streams"])
def test_a_flood_of_requests_cannot_take_the_machines_memory(name: str) -> None:
    assert SERVICES[name]["mem_limit"] == SERVICES[name]["memswap_limit"]


def test_the_proxy_routes_by_host_as_the_hub_expects() -> None:
    proxy, hub = SERVICES["proxy"], SERVICES["hub"]
    assert proxy["command"][:4] == ["python", "-m", "hub.host_routing", "configurable-http-proxy"]
    assert proxy["environment"]["FARANDOLE_ORIGINS"] == hub["environment"]["FARANDOLE_ORIGINS"]


def test_the_hub_knows_its_address_and_whether_others_reach_it() -> None:
    known = set(SERVICES["hub"]["environment"])
    assert {"COMPOSE_PROFILES", "FARANDOLE_DOMAIN", "FARANDOLE_HTTP", "FARANDOLE_PUBLIC_PORT", *DEFAULTS} <= known


def test_the_hub_gets_the_settings_of_snapshots_and_has_a_volume_for_them() -> None:
    hub = SERVICES["hub"]
    given = {key: default(value) for key, value in variables(hub["environment"]).items()}
    assert set(given) == {
        str(field.alias) for model in (SnapshotSettings, MirrorSettings) for field in model.model_fields.values()
    }
    assert SnapshotSettings.from_environment(given) == SnapshotSettings()
    assert MirrorSettings.from_environment(given) == MirrorSettings()
    folder = service_folder(Path(hub["environment"]["FARANDOLE_STATE"])).parent
    assert hub["volumes"][1] == f"${{FARANDOLE_SNAPSHOTS_FOLDER:-snapshots}}:{folder}"


@pytest.mark.parametrize("name", sorted(HTTPS_PROFILES))
def test_the_hub_finds_a_tls_server_by_the_name_of_its_profile(name: str) -> None:
    assert SERVICES[name]["profiles"] == [name]
    assert set(SERVICES[name]["networks"]) & set(SERVICES["hub"]["networks"])


def test_caddy_asks_the_hub_before_it_gets_a_certificate() -> None:
    text = SERVICES["caddy"]["environment"]["CADDYFILE"]
    [question] = re.findall(r"ask (http://hub:8081/hub\S+)\?token=\$\{FARANDOLE_PROXY_TOKEN\}", text)
    assert question == f"http://hub:8081/hub{PATH}"
    assert text.index("on_demand_tls") < text.index("https:// {") < text.index("on_demand\n")
    assert text.count("{") == text.count("}")
    assert set(SERVICES["caddy"]["networks"]) & set(SERVICES["hub"]["networks"])
