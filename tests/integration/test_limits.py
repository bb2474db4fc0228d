"""Tests for the limits on the memory and storage of a hub that one user, or anyone without a login, can occupy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import psutil
import pytest

from hub.process import local_session
from spawner_config.limits.codes import MOST_CODES
from spawner_config.limits.tokens import SPARE_TOKENS
from tests.clients.browser import Browser
from tests.flood import Flood
from tests.hub import RunningHub, run_hub
from tests.integration.test_accounts import CONFIG as ACCOUNTS
from tests.integration.test_accounts import PASSWORD, sign_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MB = 1_000_000
BODIES = 5
USER = "mallory"
SERVERS = 6
"""The maximum number of named servers of a user of the hub `small`: 3 workers, 2 notebook servers and 1 endpoint."""
PROFILES = """
[limits]
workers_per_user = 3
notebooks_per_user = 2
endpoints_per_user = 1
[[profile]]
name = "tiny"
description = "Tiny"
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    folder = tmp_path_factory.mktemp("limits")
    profiles = folder / "profiles.toml"
    profiles.write_text(PROFILES)
    with run_hub(folder / "state", profiles) as running:
        yield running


def memory(hub: RunningHub, part: str) -> int:
    """Return the memory usage of one of the hub's processes, in bytes."""
    [process] = hub._processes(part)
    return int(process.memory_info().rss)


def database(hub: RunningHub) -> int:
    return sum(path.stat().st_size for path in hub.state.glob("jupyterhub.sqlite*"))


def sessions_of_codes(hub: RunningHub) -> list[str]:
    """Return the session ids of the OAuth codes in the hub's database."""
    with closing(sqlite3.connect(f"file:{hub.state}/jupyterhub.sqlite?mode=ro", uri=True)) as db:
        return [session for (session,) in db.execute("SELECT session_id FROM oauth_codes")]


@pytest.mark.parametrize("path", ["/hub/login", f"/hub/api/users/{USER}/server"])
def test_60_mb_are_refused_before_the_login_and_neither_hub_nor_proxy_keep_them(small: RunningHub, path: str) -> None:
    def used() -> tuple[int, int, int]:
        hub = psutil.Process(small.process.process.pid).memory_info().rss
        return hub, memory(small, "configurable-http-proxy"), database(small)

    before = used()
    for _ in range(BODIES):
        answer = local_session().post(f"{small.url}{path}", data=bytes(60 * MB), timeout=60)
        assert answer.status_code == 413
        assert "the hub reads at most 16 KiB" in answer.json()["message"]
    grown = [now - then for then, now in zip(before, used(), strict=True)]
    # The proxy frees memory only at its next garbage collection, but must not keep as much as two bodies.
    assert grown[0] < 10 * MB, grown
    assert grown[1] < 120 * MB, grown
    assert grown[2] == 0, grown


def test_a_large_option_is_refused_and_not_stored(small: RunningHub) -> None:
    token = small.token_for(USER)
    for method in ("POST", "PUT", "PATCH"):
        answer = small.api(token, method, f"/hub/api/users/{USER}/servers/large", {"profile": "x" * MB})
        assert answer.status_code == 413, (method, answer.text)
    assert "large" not in small.api(token, "GET", f"/hub/api/users/{USER}").json()["servers"]


def test_the_number_of_named_servers_is_that_of_workers_notebooks_and_endpoints(small: RunningHub) -> None:
    token = small.token_for("namer")
    made = [
        small.api(token, "PUT", f"/hub/api/users/namer/servers/s{number}", {}).status_code
        for number in range(SERVERS + 2)
    ]
    assert made == [201] * SERVERS + [400] * 2
    answer = small.api(token, "POST", "/hub/api/users/namer/servers/more", {})
    assert f"already has the maximum of {SERVERS} named servers" in answer.json()["message"]


@pytest.mark.release
def test_stopped_workers_never_keep_a_user_from_new_clusters(small: RunningHub) -> None:
    token = small.token_for("builder")
    for number in range(SERVERS + 2):
        name = f"cluster{number}-w0"
        small.start_worker(token, "builder", name)
        # Stop the server without deleting its record, as the culler does.
        answer = small.api(token, "DELETE", f"/hub/api/users/builder/servers/{name}")
        assert answer.status_code in (202, 204), answer.text
        while name in small.api(token, "GET", "/hub/api/users/builder").json()["servers"]:
            continue


def test_the_number_of_tokens_is_limited(small: RunningHub) -> None:
    user, most = "collector", SPARE_TOKENS
    token = small.browser(user).make_token()
    where = f"/hub/api/users/{user}/tokens"
    answers = [small.api(token, "POST", where, {"note": "x"}) for _ in range(most + 3)]
    assert [answer.status_code for answer in answers[-3:]] == [400] * 3
    assert "Delete some at /hub/token" in answers[-1].json()["message"]
    tokens = small.api(token, "GET", where).json()["api_tokens"]
    assert len(tokens) == most
    spare = next(each["id"] for each in tokens if each["note"] == "x")
    assert small.api(token, "DELETE", f"{where}/{spare}").status_code == 204
    assert small.api(token, "POST", where, {"note": "x"}).status_code == 201


def signed_up(hub: RunningHub, name: str) -> Browser:
    assert sign_up(hub, name).ok
    return Browser(hub.url, name, PASSWORD)


# Other tests use all cores during the shorter flood, so its limit on response times is higher.
@pytest.mark.parametrize(
    ("seconds", "p99"), [(10, 5.0), pytest.param(60, 1.0, marks=pytest.mark.release)], ids=["ci", "release"]
)
def test_a_flood_of_one_user_leaves_the_hub_to_the_others(tmp_path: Path, seconds: int, p99: float) -> None:
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(PROFILES)
    with run_hub(tmp_path / "state", profiles, config=ACCOUNTS) as hub:
        attacker, other = (signed_up(hub, name) for name in (USER, "ada"))
        attacker.start_notebook("tiny")
        tokens = {"token": attacker.make_token(), "probe": other.make_token()}
        flood = Flood(url=hub.url, user=USER, login=attacker.login_cookie, **tokens)
        before = psutil.Process(hub.process.process.pid).memory_info().rss
        flood.run(seconds)
        assert flood.p99 < p99, (flood.p99, max(flood.seconds), flood.statuses)
        assert psutil.Process(hub.process.process.pid).memory_info().rss - before < 200 * MB, flood.statuses
        assert database(hub) < 20 * MB, flood.statuses
        sessions = sessions_of_codes(hub)
        assert (0 < len(sessions) <= MOST_CODES, {len(session) for session in sessions}) == (True, {32})
        flood.assert_reached()
        assert other.spawn_page()
