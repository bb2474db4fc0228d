"""Tests that a hub starts with a database of the old commit 3ff8f67 and keeps the users, servers and tokens in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.compat.places import FIXTURES
from tests.hub import RunningHub, run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKER = {"role": "worker", "cluster": "digits", "workers": 2, "backend": "torch", "together": 2}


@pytest.fixture(scope="module")
def old_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    state = tmp_path_factory.mktemp("hub")
    restore(state / "jupyterhub.sqlite")
    with run_hub(state) as running:
        yield running


def restore(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript((FIXTURES / "jupyterhub.sql").read_text(encoding="utf-8"))


def test_users_servers_and_tokens_are_unchanged(old_hub: RunningHub) -> None:
    token = old_hub.token_for("ada")
    answer = old_hub.api(token, "GET", "/hub/api/users/ada?include_stopped_servers").json()
    assert (answer["name"], answer["created"]) == ("ada", "2026-11-23T12:35:15.642823Z")
    options = {name: server["user_options"] for name, server in answer["servers"].items()}
    assert options.pop("") == {"profile": "cpu-2"}
    assert options == {
        "digits-w0": WORKER,
        "digits-w1": WORKER,
        "lost-elastic-w0": {**WORKER, "cluster": "lost-elastic"},
        "lost-elastic-w1": {**WORKER, "cluster": "lost-elastic"},
    }
    # The processes of these servers ended with the old hub.
    assert not any(server["ready"] for server in answer["servers"].values())
    browser = old_hub.browser("ada")
    tokens = browser._session.get(f"{old_hub.url}/hub/api/users/ada/tokens", timeout=30).json()["api_tokens"]
    [first] = [one for one in tokens if one["created"] == "2026-11-23T12:35:38.111676Z"]
    assert first["note"] == "farandole"
    assert set(first["scopes"]) >= {"servers!user=ada", "access:servers!user=ada", "read:users!user=ada"}


def test_the_servers_start_again_with_the_same_options(old_hub: RunningHub) -> None:
    old_hub.start_notebook("ada", "cpu-2")
    assert old_hub.environment_of("ada", "")["FARANDOLE_HUB_URL"] == old_hub.url.replace("hub.localhost", "127.0.0.1")
    token = old_hub.token_for("ada")
    old_hub.start_worker(token, "ada", "digits-w0", cluster="digits", workers=2, backend="torch", together=2)
    environment = old_hub.environment_of("ada", "digits-w0")
    assert environment["FARANDOLE_CLUSTER"] == "digits"
    assert environment["FARANDOLE_WORKER"] == "digits-w0"
    assert environment["FARANDOLE_CLUSTER_BACKEND"] == "torch"
