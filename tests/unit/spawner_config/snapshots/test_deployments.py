"""Tests that the hubs in containers and in pods start the service where only their proxy reaches it."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

import pytest
from traitlets.config import Config

from spawner_config.containers.compose_hub import BACK, configure_hub
from spawner_config.containers.settings import DockerSettings
from spawner_config.kubernetes.configure import configure
from spawner_config.profiles.profiles import parse_profiles
from spawner_config.roles import server_token_scopes
from spawner_config.settings import Settings
from spawner_config.snapshots.settings import ACCESS, PORT

if TYPE_CHECKING:
    from pathlib import Path

PROFILES = parse_profiles({"profile": [{"name": "cpu", "description": "x"}]})
GIVEN = {
    "CONFIGPROXY_AUTH_TOKEN": secrets.token_hex(32),
    "FARANDOLE_ADMIN": "root",
    "FARANDOLE_ADMIN_PASSWORD": secrets.token_urlsafe(18),
    "FARANDOLE_NOTEBOOK_IMAGE": "farandole-notebook:1",
    "FARANDOLE_SNAPSHOTS_BYTES": "20G",
    "FARANDOLE_HUB_ADDRESS": "http://hub:8081",
    "FARANDOLE_PROXY_ADDRESS": "http://proxy",
    "FARANDOLE_PROXY_API_ADDRESS": "http://proxy-api:8001",
}


@pytest.fixture
def c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration of a hub, with the settings of containers and pods in the environment, and a restic."""
    for key in [key for key in os.environ if key.startswith("FARANDOLE_")]:
        monkeypatch.delenv(key)
    for key, value in GIVEN.items():
        monkeypatch.setenv(key, value)
    program = tmp_path / "bin" / "restic"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    config = Config()
    config.JupyterHub.tornado_settings = {}
    config.Spawner.server_token_scopes = server_token_scopes
    return config


def service_of(c: Any) -> dict[str, Any]:
    (found,) = (each for each in c.JupyterHub.services if each["name"] == "snapshots")
    assert found["environment"]["FARANDOLE_SNAPSHOTS_BYTES"] == "20G"
    assert ACCESS in c.JupyterHub.extra_user_scopes
    service: dict[str, Any] = found
    return service


def test_in_containers_the_service_listens_in_the_network_without_users(c: Any, tmp_path: Path) -> None:
    configure_hub(c, Settings(state=tmp_path), PROFILES, DockerSettings.from_environment(os.environ))
    service = service_of(c)
    assert (service["url"], service["command"][-1]) == (f"http://{BACK}:{PORT}", BACK)


def test_in_pods_network_policies_keep_users_from_the_service(c: Any, tmp_path: Path) -> None:
    configure(c, Settings(state=tmp_path), PROFILES)
    service = service_of(c)
    assert (service["url"], service["command"][-1]) == (f"http://hub:{PORT}", "")
