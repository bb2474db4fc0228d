"""Tests for the configuration of the snapshots' service, and for the scopes with which servers reach it."""

from __future__ import annotations

import secrets
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from traitlets.config import Config

from spawner_config.roles import NOTEBOOK_SCOPES, WORKER_SCOPES, server_token_scopes
from spawner_config.settings import Settings, SettingsError
from spawner_config.snapshots.configure import configure_snapshots
from spawner_config.snapshots.mirrors import MIRROR, MIRROR_SCOPE, TOKENS
from spawner_config.snapshots.settings import ACCESS, MINUTES, SnapshotSettings

if TYPE_CHECKING:
    from pathlib import Path


def configured(state: Path) -> Any:
    c = Config()
    c.Spawner.server_token_scopes = server_token_scopes
    c.JupyterHub.services = [{"name": "other"}]
    c.JupyterHub.extra_user_scopes = ["access:services!service=other"]
    c.Spawner.pre_spawn_hook = lambda spawner: spawner.environment.update(BEFORE="yes")
    configure_snapshots(c, Settings(state=state), url="http://127.0.0.1:20001", bind="127.0.0.1")
    return c


def test_the_service_has_no_scopes_and_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_SNAPSHOTS_BYTES", "1T")
    hub = configured(tmp_path).JupyterHub
    other, service = hub.services
    assert (other["name"], service["name"], service["url"]) == ("other", "snapshots", "http://127.0.0.1:20001")
    assert "admin" not in service
    assert {"load_roles", "custom_scopes"}.isdisjoint(hub)
    assert service["environment"]["FARANDOLE_STATE"] == str(tmp_path)
    assert SnapshotSettings.from_environment(service["environment"]).limit == 1 << 40
    assert hub.extra_user_scopes == ["access:services!service=other", ACCESS]


def test_only_notebook_servers_get_the_scope(tmp_path: Path) -> None:
    scopes = configured(tmp_path).Spawner.server_token_scopes
    assert scopes(SimpleNamespace(name="")) == [*NOTEBOOK_SCOPES, ACCESS]
    assert scopes(SimpleNamespace(name="main-w0")) == WORKER_SCOPES
    assert ACCESS not in scopes(SimpleNamespace(name="serve-iris"))


@pytest.mark.parametrize(("value", "found"), [("", "60"), ("0.5", "0.5"), ("off", None)])
async def test_only_notebook_servers_take_automatic_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, found: str | None
) -> None:
    monkeypatch.setenv(MINUTES, value)
    hook = configured(tmp_path).Spawner.pre_spawn_hook
    notebook, worker = (SimpleNamespace(name=name, environment={}) for name in ("", "main-w0"))
    await hook(notebook)
    await hook(worker)
    assert notebook.environment == {"BEFORE": "yes", **({} if found is None else {MINUTES: found})}
    assert worker.environment == {"BEFORE": "yes"}


def test_each_other_hub_has_an_account_with_access_to_its_mirror_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {"lab": secrets.token_hex(32), "school": secrets.token_hex(32)}
    monkeypatch.setenv(TOKENS, ", ".join(f"{name}:{token}" for name, token in tokens.items()))
    hub = configured(tmp_path).JupyterHub
    assert hub.services[2:] == [{"name": f"mirror-{name}", "api_token": token} for name, token in tokens.items()]
    assert list(hub.custom_scopes) == [MIRROR_SCOPE]
    [role] = hub.load_roles
    assert (role["scopes"], role["services"]) == ([MIRROR_SCOPE], ["mirror-lab", "mirror-school"])


@pytest.mark.parametrize(("variable", "value"), [("FARANDOLE_SNAPSHOTS", "off"), ("PATH", "")])
def test_a_hub_can_have_no_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    c = configured(tmp_path)
    assert [service["name"] for service in c.JupyterHub.services] == ["other"]
    assert c.JupyterHub.extra_user_scopes == ["access:services!service=other"]
    assert c.Spawner.server_token_scopes(SimpleNamespace(name="")) == NOTEBOOK_SCOPES
    assert ("There is no program restic" in caplog.text) == (variable == "PATH")


@pytest.mark.parametrize(("variable", "value"), [(MIRROR, "/mnt"), (TOKENS, f"lab:{'0123456789abcdef' * 4}")])
def test_mirrors_need_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("FARANDOLE_SNAPSHOTS", "off")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"^{MIRROR} and {TOKENS} need FARANDOLE_SNAPSHOTS=on, "):
        configured(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("FARANDOLE_SNAPSHOTS", "no", "'on' or 'off'"),
        ("FARANDOLE_SNAPSHOTS_MINUTES", "hourly", "a number of minutes greater than 0, or 'off'"),
        ("FARANDOLE_SNAPSHOTS_MINUTES", "0", "a number of minutes greater than 0, or 'off'"),
        ("FARANDOLE_SNAPSHOTS_BYTES", "10 GB", "text such as '512M' or '4G'"),
        ("FARANDOLE_SNAPSHOTS_HOURS", "-1", "a number of hours"),
        ("FARANDOLE_SNAPSHOTS_DAYS", "1.5", "a number of days"),
        ("FARANDOLE_SNAPSHOTS_MESSAGE_DAYS", "year", "a number of days"),
    ],
)
def test_bad_settings_are_refused(variable: str, value: str, wanted: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} is '{value}'. It must be {wanted}.$"):
        SnapshotSettings.from_environment({variable: value})
