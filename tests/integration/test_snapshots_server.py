"""The snapshots' service on a real hub: who reaches it, through the hub's proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hub.process import local_session
from tests.clients.snapshots import Client, state_of
from tests.hub import run_hub

if TYPE_CHECKING:
    from pathlib import Path

    import requests

    from tests.hub import RunningHub

SNAPSHOTS = "/services/snapshots/"


@pytest.fixture(scope="module")
def token(hub: RunningHub) -> str:
    """The token of ada's notebook server."""
    hub.start_notebook("ada")
    return hub.environment_of("ada", "")["JUPYTERHUB_API_TOKEN"]


def ask(hub: RunningHub, method: str, path: str, token: str) -> requests.Response:
    headers = {"Authorization": f"token {token}"} if token else {}
    return local_session().request(method, f"{hub.url}{SNAPSHOTS}{path}", headers=headers, timeout=60)


def test_a_notebook_server_takes_and_restores_snapshots(hub: RunningHub, token: str, tmp_path: Path) -> None:
    answer = ask(hub, "POST", "open", token)
    assert answer.status_code == 200, answer.text
    assert answer.json()["repository"] == f"rest:{hub.url}{SNAPSHOTS}repositories/ada/"
    home = tmp_path / "home"
    home.mkdir()
    (home / "notes.txt").write_text("first")
    proxy = hub.environment_of("ada", "")["FARANDOLE_HUB_URL"]
    restic = Client(answer.json(), "ada", token, tmp_path / "client", proxy)
    restic("backup", str(home))
    assert "no errors were found" in restic("check")
    restic("restore", "latest", "--target", str(tmp_path / "back"))
    assert state_of(tmp_path / "back" / home.relative_to("/")) == state_of(home)


def test_only_tokens_of_notebook_servers_and_users_reach_the_repository(hub: RunningHub, token: str) -> None:
    path = "repositories/ada/config"
    assert ask(hub, "POST", "open", token).status_code == 200
    assert ask(hub, "GET", path, token).status_code == 200
    assert ask(hub, "GET", path, "").status_code == 401
    grace = hub.token_for("grace", ["access:services!service=snapshots"])
    assert ask(hub, "GET", path, grace).status_code == 404
    hub.start_worker(hub.token_for("ada"), "ada", "snap-w0")
    worker = hub.environment_of("ada", "snap-w0")["JUPYTERHUB_API_TOKEN"]
    assert ask(hub, "GET", path, worker).status_code == 403
    assert ask(hub, "POST", "open", worker).status_code == 403


@pytest.mark.release
def test_the_service_of_a_killed_hub_is_replaced(tmp_path: Path) -> None:
    with run_hub(tmp_path / "state") as own_hub:
        token = own_hub.token_for("ada", ["access:services!service=snapshots"])
        first = ask(own_hub, "POST", "open", token)
        assert first.status_code == 200, first.text
        own_hub.kill_and_restart()
        second = ask(own_hub, "POST", "open", token)
        assert (second.status_code, second.json()) == (200, first.json())
