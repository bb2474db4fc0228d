"""Tests for the operators' page on a real hub: who may open it, what it shows, stops and says, and its metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from hub.process import CONFIG, local_session, processes_of, wait_until
from spawner_config.operators.configure import SCOPES
from spawner_config.operators.site import VARIABLE
from tests.clients.operators import act, page_of
from tests.hub import METRICS_TOKEN as TOKEN
from tests.hub import run_hub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import requests

    from tests.hub import RunningHub

REASON = "The machine <b>moves</b> & restarts."
NOTICES = "/hub/api/farandole/notices"
ADMIN_PASSWORD = "fedcba9876543210" * 4
ADMINISTERED = f"""
load_subconfig({str(CONFIG)!r})
c.Authenticator.admin_users = {{"root"}}
c.SharedPasswordAuthenticator.admin_password = "{ADMIN_PASSWORD}"
"""


@pytest.fixture(scope="module")
def hub(operators_hub: RunningHub) -> RunningHub:
    """The hub on which olga and otto are operators."""
    return operators_hub


@pytest.fixture
def administered_hub(tmp_path: Path) -> Iterator[RunningHub]:
    """A hub with the administrator root."""
    config = tmp_path / "administered_config.py"
    config.write_text(ADMINISTERED)
    with run_hub(tmp_path, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def servers(hub: RunningHub) -> None:
    """A notebook server and a worker of ada, and a notebook server of grace."""
    hub.start_notebook("ada")
    hub.start_worker(hub.token_for("ada"), "ada", "main-w0", profile="cpu-2")
    hub.start_notebook("grace")


def metrics(hub: RunningHub, headers: dict[str, str], session: requests.Session | None = None) -> requests.Response:
    where = f"{hub.url}/services/operators/metrics"
    return (session or local_session()).get(where, headers=headers, timeout=30, allow_redirects=False)


def test_an_operator_sees_who_uses_what(hub: RunningHub, servers: None) -> None:
    answer = page_of(hub, hub.browser("olga"))
    assert answer.status_code == 200
    assert answer.url == f"{hub.url}/services/operators/"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    for text in ('scope="row">ada<', 'scope="row">grace<', "main-w0", "cpu-2", "1 of 16", "MiB"):
        assert text in answer.text, text


def test_a_user_gets_403_and_a_stranger_the_login_page(hub: RunningHub) -> None:
    assert page_of(hub, hub.browser("ada")).status_code == 403
    answer = local_session().get(f"{hub.url}/services/operators/", timeout=30)
    assert answer.url.startswith(f"{hub.url}/hub/login")
    refused = local_session().post(f"{hub.url}/services/operators/stop", data={"user": "ada", "text": "x"}, timeout=30)
    assert refused.status_code == 403


def test_a_form_from_another_page_is_refused(hub: RunningHub, servers: None) -> None:
    olga = hub.browser("olga")
    fields = {"user": "grace", "text": "no"}
    assert act(hub, olga, "stop", origin=hub.url.replace("//", "//eve."), **fields).status_code == 403
    assert act(hub, olga, "stop", _xsrf="wrong", **fields).status_code == 403
    assert hub.browser("grace").has_notebook()


def test_a_text_is_needed(hub: RunningHub, servers: None) -> None:
    assert act(hub, hub.browser("olga"), "stop", user="grace", text=" \n ").status_code == 400
    assert act(hub, hub.browser("olga"), "message", user="grace", text="x" * 501).status_code == 400
    assert "There is no user" in act(hub, hub.browser("olga"), "message", user="nobody", text="hello").text


def test_metrics_need_the_token(hub: RunningHub, servers: None) -> None:
    assert metrics(hub, {}).status_code == 403
    olga = hub.browser("olga")
    assert page_of(hub, olga).ok
    assert metrics(hub, {}, olga._session).status_code == 403
    assert metrics(hub, {"Authorization": f"Bearer {hub.token_for('ada')}"}).status_code == 403
    answer = metrics(hub, {"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200
    lines = answer.text.splitlines()
    assert 'farandole_servers{kind="worker",profile="cpu-2",state="running"} 1.0' in lines
    assert "farandole_users_active 2.0" in lines
    assert any(line.startswith('farandole_server_idle_seconds{user="grace"}') for line in lines)
    assert hub.api(TOKEN, "GET", "/hub/metrics").status_code == 200
    assert hub.api(TOKEN, "GET", "/hub/api/users").status_code == 403


def test_a_stopped_user_is_told_who_and_why(hub: RunningHub, servers: None) -> None:
    ada = hub.browser("ada")
    answer = act(hub, hub.browser("olga"), "stop", user="ada", server="main-w0", text=REASON)
    assert "Stopped servers of ada: main-w0." in answer.text
    assert ada.has_notebook()
    # On a busy machine, the worker may still be stopping.
    assert "Stopped servers of ada: notebook" in act(hub, hub.browser("olga"), "stop", user="ada", text="Bye.").text
    wait_until(lambda: not ada.has_notebook(), 60)
    for path in ("/hub/home", "/hub/spawn/ada"):
        text = ada._session.get(f"{hub.url}{path}", timeout=30).text
        assert "olga stopped the server main-w0. Reason: The machine &lt;b&gt;moves&lt;/b&gt; &amp; restarts." in text
        assert "olga stopped your notebook server. Reason: Bye." in text
    assert "Reason:" not in hub.browser("grace")._session.get(f"{hub.url}/hub/home", timeout=30).text


def test_a_message_is_shown_to_its_user(hub: RunningHub) -> None:
    hub.browser("grace")
    assert "Left a message for grace." in act(hub, hub.browser("otto"), "message", user="grace", text="Tidy up.").text
    home = hub.browser("grace")._session.get(f"{hub.url}/hub/home", timeout=30).text
    assert "message from otto: Tidy up." in home


def notices(hub: RunningHub, token: str) -> list[dict[str, Any]]:
    """Return the notices that the hub sends for this token, the newest first."""
    answer = hub.api(token, "GET", NOTICES)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def test_a_notebook_server_reads_the_notices_of_its_user_only(hub: RunningHub, servers: None) -> None:
    begun, text = time.time(), "Read <b>this</b>."
    act(hub, hub.browser("olga"), "message", user="grace", text=text)
    [newest, *_] = notices(hub, hub.environment_of("grace", "")["JUPYTERHUB_API_TOKEN"])
    assert begun - 1 < newest.pop("at") < time.time() + 1
    assert newest == {"by": "olga", "text": text, "servers": []}
    state = hub.api(hub.token_for("grace"), "GET", "/user/grace/farandole/panel/state").json()
    assert state["hub"]["notices"][0]["text"] == text
    assert notices(hub, hub.token_for("linus")) == []
    for token in (hub.token_for("grace", ["access:servers!user"]), TOKEN):
        assert hub.api(token, "GET", NOTICES).status_code == 403
    assert local_session().get(f"{hub.url}{NOTICES}", timeout=30).status_code == 403


def test_a_user_whose_server_an_administrator_stops_is_told_who(administered_hub: RunningHub) -> None:
    hub, ada = administered_hub, administered_hub.browser("ada")
    ada.start_notebook("lean")
    root = hub.browser("root", ADMIN_PASSWORD)
    where, headers = f"{hub.url}/hub/api/users/ada/server", {"X-XSRFToken": root._xsrf()}
    # JupyterHub's page for administrators sends this request; the last ones find no running server.
    for _ in range(3):
        assert root._session.delete(where, headers=headers, timeout=60).status_code in (202, 204)
    wait_until(lambda: not ada.has_notebook(), 60)
    [notice] = notices(hub, hub.token_for("ada"))
    assert (notice["by"], notice["text"], notice["servers"]) == ("root", "", [""])
    home = ada._session.get(f"{hub.url}/hub/home", timeout=30).text
    assert "root stopped your notebook server. Reason: none given." in home
    ada.start_notebook("lean")
    ada.stop_notebook()
    assert len(notices(hub, hub.token_for("ada"))) == 1


def test_the_services_token_reaches_only_what_the_page_needs(hub: RunningHub, servers: None) -> None:
    environments = [process.environ() for process in processes_of(hub.state)]
    [token] = [each["JUPYTERHUB_API_TOKEN"] for each in environments if VARIABLE in each]
    assert SCOPES == ["list:users", "read:users:activity", "read:servers", "delete:servers"]
    assert hub.api(token, "GET", "/hub/api/users").status_code == 200
    for method, path in (
        ("POST", "/hub/api/users/mallory"),
        ("DELETE", "/hub/api/users/grace"),
        ("POST", "/hub/api/users/grace/tokens"),
        ("POST", "/hub/api/users/grace/servers/mine"),
        ("GET", "/hub/api/groups"),
        ("GET", "/user/grace/api/contents"),
        ("GET", "/hub/metrics"),
        ("GET", NOTICES),
    ):
        assert hub.api(token, method, path).status_code in (403, 404), path
