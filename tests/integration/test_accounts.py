"""Tests for accounts on a real hub: what strangers can find out or delay, and which sessions a new password ends."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from farandole import Endpoint
from farandole.streams import Broker, hub_broker
from nats.errors import Error

from hub.process import is_healthy, local_session, wait_until
from spawner_config.roles import NOTEBOOK_SCOPES
from tests.clients.browser import Browser, BrowserError
from tests.hub import RunningHub, run_hub
from tests.integration.test_serving import APP
from tests.nats_server import ignore
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

CONFIG = Path(__file__).with_name("accounts_config.py")
ADMIN_PASSWORD = "a password for tests"
PASSWORD, NEW = "three quiet horses", "four louder horses"
LOGINS = 30
DELETE_SECONDS = 10


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub with user accounts, on which anyone can sign up."""
    with run_hub(tmp_path_factory.mktemp("accounts"), config=CONFIG) as running:
        yield running


def submit(hub: RunningHub, path: str, session: requests.Session | None = None, **fields: str) -> requests.Response:
    """Submit the form of the page at ``path`` with the page's XSRF token."""
    session = session or local_session()
    session.get(f"{hub.url}/hub/{path}", timeout=30)
    token = [cookie.value or "" for cookie in session.cookies if cookie.name == "_xsrf"][-1]
    return session.post(f"{hub.url}/hub/{path}", data={"_xsrf": token, **fields}, timeout=60)


def sign_up(hub: RunningHub, name: str) -> requests.Response:
    return submit(hub, "signup", username=name, signup_password=PASSWORD, signup_password_confirmation=PASSWORD)


def log_in(hub: RunningHub, name: str, password: str) -> requests.Response:
    return submit(hub, "login", username=name, password=password)


def change(hub: RunningHub, browser: Browser, password: str, new: str) -> requests.Response:
    fields = {"old_password": password, "new_password": new, "new_password_confirmation": new}
    return submit(hub, "change-password", browser._session, **fields)


def test_a_new_password_ends_other_logins_and_tokens_and_no_server(hub: RunningHub) -> None:
    sign_up(hub, "rosa")
    mine, stolen = (Browser(hub.url, "rosa", PASSWORD) for _ in range(2))
    token = stolen.make_token()
    mine.start_notebook()
    server = hub.environment_of("rosa", "")["JUPYTERHUB_API_TOKEN"]
    assert "changed successfully" in change(hub, mine, PASSWORD, NEW).text
    assert hub.api(token, "GET", "/hub/api/user").status_code == 403
    with pytest.raises(Exception, match="403"):
        stolen.has_notebook()
    assert hub.api(server, "GET", "/hub/api/users/rosa").status_code == 200
    assert mine.has_notebook()
    assert log_in(hub, "rosa", PASSWORD).status_code == 403
    assert Browser(hub.url, "rosa", NEW)


def test_a_reset_by_the_administrator_ends_logins_and_tokens(hub: RunningHub) -> None:
    sign_up(hub, "viola")
    token = Browser(hub.url, "viola", PASSWORD).make_token()
    admin = Browser(hub.url, "root", ADMIN_PASSWORD)
    fields = {"new_password": NEW, "new_password_confirmation": NEW}
    assert "changed successfully" in submit(hub, "change-password/viola", admin._session, **fields).text
    assert hub.api(token, "GET", "/hub/api/user").status_code == 403
    assert Browser(hub.url, "viola", NEW)
    assert admin.make_token()


def test_a_lock_out_ends_the_endpoints_of_its_user_and_the_tokens_of_their_callers(
    hub: RunningHub, tmp_path: Path
) -> None:
    sign_up(hub, "hilda")
    script = tmp_path / "app.py"
    script.write_text(APP)
    owner = Browser(hub.url, "hilda", PASSWORD).make_token(NOTEBOOK_SCOPES)
    endpoint = Endpoint.start(command=["python", str(script)], progress=len, hub_url=hub.url, token=owner)
    token = endpoint.token(days=1)
    assert hub.api(token, "GET", "/user/hilda/serve-app/").status_code == 200
    assert hub.api(token, "GET", "/hub/api/user").status_code == 200
    admin = Browser(hub.url, "root", ADMIN_PASSWORD)
    assert submit(hub, "authorize", admin._session, username="hilda", action="lock-out").ok
    assert hub.api(admin.make_token(), "GET", "/hub/api/users/hilda").json()["servers"] == {}
    # No server answers at this address. A GET request would be redirected to the hub's login.
    assert hub.api(token, "POST", "/user/hilda/serve-app/").status_code == 503
    assert hub.api(token, "GET", "/hub/api/user").status_code == 403


def test_a_password_that_is_too_long_is_answered_alike_for_all_names(hub: RunningHub) -> None:
    answers = [log_in(hub, name, "x" * 73) for name in ("root", "nobody")]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert ["Invalid username or password" in answer.text for answer in answers] == [True, True]
    sign_up(hub, "emmy")
    assert "current password was incorrect" in change(hub, Browser(hub.url, "emmy", PASSWORD), "x" * 73, NEW).text


@pytest.mark.release
def test_the_hub_answers_others_while_many_log_in(hub: RunningHub) -> None:
    """Check that passwords are not hashed in the event loop, because this takes tenths of a second of CPU time."""
    slowest = 0.0
    begun = time.monotonic()
    with ThreadPoolExecutor(LOGINS) as pool:
        logins = [pool.submit(log_in, hub, f"nobody{number}", PASSWORD) for number in range(LOGINS)]
        while not all(login.done() for login in logins):
            asked = time.monotonic()
            assert is_healthy(hub.url, timeout=30)
            slowest = max(slowest, time.monotonic() - asked)
    assert slowest < (time.monotonic() - begun) / 3
    assert {login.result().status_code for login in logins} == {403}


def test_of_two_names_with_one_home_the_second_is_refused(hub: RunningHub) -> None:
    assert "successful" in sign_up(hub, FIRST).text
    answer = sign_up(hub, SECOND)
    assert answer.status_code == 403
    assert "belongs to another user. Choose another name" in answer.text
    with pytest.raises(BrowserError):
        Browser(hub.url, SECOND, PASSWORD)


def test_a_user_added_with_the_home_of_another_gets_no_server(hub: RunningHub) -> None:
    sign_up(hub, FIRST)
    Browser(hub.url, FIRST, PASSWORD)
    token = Browser(hub.url, "root", ADMIN_PASSWORD).make_token()
    assert hub.api(token, "POST", f"/hub/api/users/{SECOND}").status_code == 201
    answer = hub.api(token, "POST", f"/hub/api/users/{SECOND}/server")
    assert answer.status_code == 403
    assert "belongs to another user" in answer.json()["message"]


def test_a_locked_name_is_locked_whether_it_exists_or_not(hub: RunningHub) -> None:
    sign_up(hub, "victim")
    for name in ("victim", "phantom"):
        answers = [log_in(hub, name, "wrong") for _ in range(6)]
        assert "locked for 10 minutes" in answers[-1].text
        assert {answer.status_code for answer in answers} == {403}


def test_a_user_who_is_deleted_loses_the_account_at_the_nats_server(hub: RunningHub) -> None:
    sign_up(hub, "sofja")
    browser = Browser(hub.url, "sofja", PASSWORD)
    browser.start_notebook()
    broker = hub_broker(hub.environment_of("sofja", ""))
    assert asyncio.run(is_admitted(broker))
    admin = Browser(hub.url, "root", ADMIN_PASSWORD)
    token = admin.make_token(["admin:users", "delete:users", "delete:servers"])
    assert hub.api(token, "DELETE", "/hub/api/users/sofja").status_code == 204
    wait_until(lambda: not asyncio.run(is_admitted(broker)), DELETE_SECONDS)


async def is_admitted(broker: Broker) -> bool:
    """Return whether a NATS server accepts the credentials. Raises other errors of the connection."""
    try:
        client = await broker.connect(error_cb=ignore, allow_reconnect=False)
    except Error as error:
        if "Authorization Violation" in str(error):
            return False
        raise
    await client.close()
    return True
