"""Accounts on a hub where sign-up needs approval or is closed. Only an administrator can approve an account."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING

import pytest

from hub.process import local_session
from spawner_config.containers.names import slug
from tests.clients.browser import Browser, BrowserError
from tests.docker.hub_api import HubApi
from tests.docker.stack import ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

    from tests.docker.stack import Stack

PASSWORD = "three quiet horses"


def page(stack: Stack, path: str, session: requests.Session | None = None) -> requests.Response:
    return (session or local_session()).get(f"{stack.url}/hub/{path}", timeout=30)


def submit(stack: Stack, session: requests.Session, path: str, **fields: str) -> requests.Response:
    """Submit a form as the page at ``path`` does, with the session's XSRF token."""
    session.get(f"{stack.url}/hub/{path}", timeout=30)
    token = next(cookie.value or "" for cookie in session.cookies if cookie.name == "_xsrf")
    return session.post(f"{stack.url}/hub/{path}", data={"_xsrf": token, **fields}, timeout=30)


def sign_up(stack: Stack, user: str, password: str = PASSWORD) -> requests.Response:
    fields = {"username": user, "signup_password": password, "signup_password_confirmation": password}
    return submit(stack, local_session(), "signup", **fields)


def log_in(stack: Stack, user: str, password: str) -> requests.Response:
    return submit(stack, local_session(), "login", username=user, password=password)


def admin_session(stack: Stack) -> requests.Session:
    session = local_session()
    submit(stack, session, "login", username=ADMIN, password=stack.passwords[ADMIN]).raise_for_status()
    return session


def may_log_in(stack: Stack, user: str) -> bool:
    try:
        Browser(stack.url, user, PASSWORD)
    except BrowserError:
        return False
    return True


def test_a_new_account_waits_until_the_administrator_approves(closed_stack: Stack) -> None:
    assert "sent to the admin" in sign_up(closed_stack, "emmy").text
    answer = log_in(closed_stack, "emmy", PASSWORD)
    assert answer.status_code == 403
    assert "has not approved this account yet" in answer.text

    admin = admin_session(closed_stack)
    assert "emmy" in page(closed_stack, "authorize", admin).text
    assert submit(closed_stack, admin, "authorize", username="emmy", action="approve").ok
    assert may_log_in(closed_stack, "emmy")
    assert submit(closed_stack, admin, "authorize", username="emmy", action="lock-out").ok
    assert not may_log_in(closed_stack, "emmy")
    assert submit(closed_stack, admin, "authorize", username="emmy", action="discard").ok
    assert "emmy" not in page(closed_stack, "authorize", admin).text


def test_a_locked_out_user_loses_tokens_and_servers_immediately(closed_stack: Stack) -> None:
    sign_up(closed_stack, "tova")
    admin = admin_session(closed_stack)
    submit(closed_stack, admin, "authorize", username="tova", action="approve")
    closed_stack.passwords["tova"] = PASSWORD
    closed_stack.browser("tova").start_notebook()
    token = HubApi(closed_stack, "tova")
    assert token.request("GET", "user").ok
    assert [name for name in closed_stack.containers() if "tova" in name]

    assert submit(closed_stack, admin, "authorize", username="tova", action="lock-out").ok
    assert not [name for name in closed_stack.containers() if "tova" in name]
    assert token.request("GET", "user").status_code == 403
    assert token.ask("tova", "c-w0").status_code == 403

    submit(closed_stack, admin, "authorize", username="tova", action="approve")
    assert may_log_in(closed_stack, "tova")
    assert token.request("GET", "user").status_code == 403
    for action in ("lock-out", "discard"):
        assert submit(closed_stack, admin, "authorize", username="tova", action=action).ok
    assert HubApi(closed_stack, ADMIN).request("GET", "users/tova").status_code == 404


def test_administrators_cannot_lock_themselves_out(closed_stack: Stack) -> None:
    sign_up(closed_stack, "viola")
    admin = admin_session(closed_stack)
    text = page(closed_stack, "authorize", admin).text
    assert 'value="viola"' in text
    assert f'value="{ADMIN}"' not in text
    answer = submit(closed_stack, admin, "authorize", username=ADMIN, action="lock-out")
    assert answer.status_code == 400
    assert "your own account" in answer.text
    assert page(closed_stack, "authorize", admin).ok


def test_links_other_pages_and_other_users_cannot_approve(closed_stack: Stack) -> None:
    sign_up(closed_stack, "mallory")
    admin = admin_session(closed_stack)
    for path in ("authorize/mallory", "discard/mallory", "authorize?username=mallory&action=approve", "confirm/x"):
        page(closed_stack, path, admin)
    fields = {"username": "mallory", "action": "approve"}
    foreign = admin.post(f"{closed_stack.url}/hub/authorize", data=fields, timeout=30)
    assert foreign.status_code == 403
    assert "XSRF" in foreign.text or "xsrf" in foreign.text
    stranger = local_session()
    assert submit(closed_stack, stranger, "authorize", **fields).status_code in {403, 405}
    text = page(closed_stack, "authorize", admin).text
    assert re.search(r"<td>mallory</td>\s*<td>\s*no\s*</td>", text), text
    assert not may_log_in(closed_stack, "mallory")


def test_a_user_without_administrator_rights_sees_no_accounts(stack: Stack) -> None:
    stack.browser("ada")
    session = local_session()
    submit(stack, session, "login", username="ada", password=stack.passwords["ada"]).raise_for_status()
    for answer in (
        page(stack, "authorize", session),
        submit(stack, session, "authorize", username=ADMIN, action="lock-out"),
        page(stack, f"change-password/{ADMIN}", session),
    ):
        assert answer.status_code in {403, 404}, answer.text
    assert stack.browser(ADMIN)


@pytest.mark.parametrize(
    ("user", "password"),
    [("weak", "short"), ("weak", "1234567890"), ("weak", "x" * 80), ("../weak", PASSWORD), ("we ak", PASSWORD)],
)
def test_weak_passwords_and_invalid_names_create_no_account(closed_stack: Stack, user: str, password: str) -> None:
    assert "Something went wrong" in sign_up(closed_stack, user, password).text
    assert user not in page(closed_stack, "authorize", admin_session(closed_stack)).text


def test_failed_logins_lock_only_their_account(closed_stack: Stack) -> None:
    sign_up(closed_stack, "victim")
    submit(closed_stack, admin_session(closed_stack), "authorize", username="victim", action="approve")
    answers = [log_in(closed_stack, "victim", f"wrong {secrets.token_hex(4)}") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [403] * 5
    locked = log_in(closed_stack, "victim", PASSWORD)
    assert locked.status_code == 403
    assert "locked for 10 minutes" in locked.text
    assert admin_session(closed_stack).get(f"{closed_stack.url}/hub/admin", timeout=30).ok


def test_a_changed_password_replaces_the_old_one(closed_stack: Stack) -> None:
    sign_up(closed_stack, "rosa")
    submit(closed_stack, admin_session(closed_stack), "authorize", username="rosa", action="approve")
    closed_stack.passwords["rosa"] = PASSWORD
    token = HubApi(closed_stack, "rosa")
    session, stolen = local_session(), local_session()
    for each in (session, stolen):
        submit(closed_stack, each, "login", username="rosa", password=PASSWORD).raise_for_status()
    new = "four louder horses"
    fields = {"old_password": PASSWORD, "new_password": new, "new_password_confirmation": new}
    assert "changed successfully" in submit(closed_stack, session, "change-password", **fields).text
    assert not may_log_in(closed_stack, "rosa")
    assert token.request("GET", "user").status_code == 403
    assert page(closed_stack, "home", stolen).url.endswith("/hub/login?next=%2Fhub%2Fhome")
    assert page(closed_stack, "home", session).url.endswith("/hub/home")
    assert Browser(closed_stack.url, "rosa", new)


def test_a_home_carries_the_full_name_of_its_user_and_that_of_another_is_refused(closed_stack: Stack) -> None:
    admin = admin_session(closed_stack)
    for user in ("marie.curie", "lise"):
        sign_up(closed_stack, user)
        submit(closed_stack, admin, "authorize", username=user, action="approve")
    home = f"{closed_stack.name}-home-{slug('marie.curie')}"
    marie = Browser(closed_stack.url, "marie.curie", PASSWORD)
    marie.start_notebook()
    labels = json.loads(closed_stack.docker("volume", "inspect", home))[0]["Labels"]
    network = f"{closed_stack.name}-user-{slug('marie.curie')}"
    marie.stop_notebook()
    assert labels["farandole.owner"] == "marie.curie"
    assert network not in closed_stack.docker("network", "ls")

    # This home looks as if it came from an earlier user whose name has the same short form.
    theirs = f"{closed_stack.name}-home-lise"
    hub = f"--label=farandole.hub={closed_stack.name}"
    closed_stack.docker("volume", "create", hub, "--label=farandole.owner=another", theirs)
    lise = Browser(closed_stack.url, "lise", PASSWORD)
    with pytest.raises(BrowserError, match=f"volume {theirs} belongs to the user 'another'.*remove the volume"):
        lise.start_notebook()
    closed_stack.docker("volume", "rm", theirs)
    # Homes from earlier versions have no label with the owner's name.
    closed_stack.docker("volume", "create", hub, theirs)
    lise.start_notebook()
    lise.stop_notebook()


@pytest.fixture
def sign_up_closed(closed_stack: Stack) -> Iterator[None]:
    before = (closed_stack.folder / ".env").read_text()
    restart(closed_stack, before.replace("FARANDOLE_SIGNUP=approval", "FARANDOLE_SIGNUP=closed"))
    yield
    restart(closed_stack, before)


def restart(stack: Stack, settings: str) -> None:
    (stack.folder / ".env").write_text(settings)
    stack.compose("up", "-d")
    stack.wait_ready()


@pytest.mark.usefixtures("sign_up_closed")
def test_closed_sign_up_has_no_page_and_accepts_no_form(closed_stack: Stack) -> None:
    assert page(closed_stack, "signup").status_code == 404
    assert "/hub/signup" not in page(closed_stack, "login").text
    session = local_session()
    page(closed_stack, "login", session)
    token = next(cookie.value for cookie in session.cookies if cookie.name == "_xsrf")
    fields = {"username": "late", "signup_password": PASSWORD, "signup_password_confirmation": PASSWORD}
    answer = session.post(f"{closed_stack.url}/hub/signup", data={**fields, "_xsrf": token}, timeout=30)
    assert answer.status_code == 404
    assert not may_log_in(closed_stack, "late")
    assert "late" not in page(closed_stack, "authorize", admin_session(closed_stack)).text
