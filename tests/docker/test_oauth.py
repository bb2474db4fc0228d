"""Logins with an OpenID provider. Only listed users can log in, and each failure is reported."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from hub.process import local_session
from tests.docker import openid
from tests.docker.stack import ADMIN, fill_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import requests

    from tests.docker.openid import Provider
    from tests.docker.stack import Stack

BUTTON = re.compile(r"href=['\"](/hub/oauth_login[^'\"]*)['\"]")
ALLOWED = "FARANDOLE_ALLOWED_USERS"


def change(stack: Stack, env: str) -> None:
    (stack.folder / ".env").write_text(env)
    stack.compose("up", "-d")
    stack.wait_ready()


@pytest.fixture(scope="module")
def provider_runs(closed_stack: Stack) -> Iterator[Provider]:
    """Switch the closed hub's logins to a stand-in provider, and allow only olga and oskar.

    The hub's own accounts are restored at the end.
    """
    [network] = json.loads(closed_stack.docker("network", "inspect", f"{closed_stack.name}-front"))
    gateway = network["IPAM"]["Config"][0]["Gateway"]
    before = (closed_stack.folder / ".env").read_text()
    with openid.running(gateway, callback=f"{closed_stack.url}/hub/oauth_callback") as provider:
        change(closed_stack, fill_in(before, {**provider.settings(), ALLOWED: "olga, oskar"}))
        yield provider
        change(closed_stack, before)


@pytest.fixture
def provider(provider_runs: Provider) -> Provider:
    provider_runs.claims, provider_runs.denies, provider_runs.broken = {}, None, {}
    return provider_runs


def log_in(stack: Stack, session: requests.Session, *, follow: bool = True) -> requests.Response:
    """Press the button on the login page.

    Return the last page or, without ``follow``, the provider's redirect to the hub.
    """
    page = session.get(f"{stack.url}/hub/login", timeout=30)
    button = BUTTON.search(page.text)
    assert button, page.text
    there = f"{stack.url}{html.unescape(button[1])}"
    if follow:
        return session.get(there, timeout=60)
    to_provider = session.get(there, allow_redirects=False, timeout=30)
    return session.get(to_provider.headers["Location"], allow_redirects=False, timeout=30)


def whoami(stack: Stack, session: requests.Session) -> requests.Response:
    return session.get(f"{stack.url}/hub/api/user", timeout=30)


@pytest.mark.parametrize(("claim", "name", "admin"), [("Olga", "olga", False), (ADMIN, ADMIN, True)])
def test_a_listed_user_can_log_in(closed_stack: Stack, provider: Provider, claim: str, name: str, admin: bool) -> None:
    provider.claims = {openid.CLAIM: claim, "email": "someone@example.org"}
    session = local_session()
    answer = log_in(closed_stack, session)
    assert answer.ok, answer.text
    # The login ends on a page of the user's server if a test in another module has left this server running.
    assert urlsplit(answer.url).path.startswith(("/hub/home", "/hub/spawn", f"/user/{name}/")), answer.url
    user = whoami(closed_stack, session).json()
    assert (user["name"], user["admin"]) == (name, admin)


def test_a_user_who_is_not_listed_is_refused(closed_stack: Stack, provider: Provider) -> None:
    provider.claims = {openid.CLAIM: "mallory"}
    session = local_session()
    answer = log_in(closed_stack, session)
    assert answer.status_code == 403
    assert "you are not currently authorized to use this hub. Please contact the hub administrator" in answer.text
    assert whoami(closed_stack, session).status_code == 403


def test_a_wrong_state_is_refused(closed_stack: Stack, provider: Provider) -> None:
    provider.claims = {openid.CLAIM: "olga"}
    mine = local_session()
    back = log_in(closed_stack, mine, follow=False).headers["Location"]
    query = {key: values[0] for key, values in parse_qs(urlsplit(back).query).items()}
    # Use the code of one login in another browser, which has a different OAuth state or none.
    victim, stranger = local_session(), local_session()
    log_in(closed_stack, victim, follow=False)
    forged = back.replace(urlencode({"state": query["state"]}), urlencode({"state": "eyJzdGF0ZV9pZCI6ICJ4In0="}))
    assert forged != back
    for session, address in ((victim, back), (stranger, back), (mine, forged)):
        answer = session.get(address, timeout=30)
        assert answer.status_code == 400, answer.text
        assert "OAuth state" in answer.text
        assert whoami(closed_stack, session).status_code == 403


def test_a_login_that_the_user_denies_is_reported(closed_stack: Stack, provider: Provider) -> None:
    provider.denies = "You said <b>no</b>."
    session = local_session()
    answer = log_in(closed_stack, session)
    assert answer.status_code == 400
    assert "OAuth error: You said &lt;b&gt;no&lt;/b&gt;." in answer.text
    assert whoami(closed_stack, session).status_code == 403


@pytest.mark.parametrize(
    ("broken", "claims", "status", "words"),
    [
        ({"/token": 401}, {}, 403, "The login provider refused this login with HTTP 401. Log in again"),
        ({"/userinfo": 500}, {}, 503, "The login provider cannot be used now"),
        ({}, {"email": "olga@example.org"}, 403, f"The login provider sends no '{openid.CLAIM}'"),
    ],
    ids=["token refused", "provider fails", "no name"],
)
def test_missing_answers_of_the_provider_are_reported(
    closed_stack: Stack, provider: Provider, broken: dict[str, int], claims: dict[str, str], status: int, words: str
) -> None:
    provider.claims, provider.broken = claims, broken
    session = local_session()
    answer = log_in(closed_stack, session)
    assert answer.status_code == status, answer.text
    assert words in html.unescape(answer.text)
    assert whoami(closed_stack, session).status_code == 403


def test_a_code_can_be_used_once(closed_stack: Stack, provider: Provider) -> None:
    provider.claims = {openid.CLAIM: "olga"}
    session = local_session()
    back = log_in(closed_stack, session, follow=False).headers["Location"]
    cookies = session.cookies.copy()
    assert session.get(back, timeout=30).ok
    session.cookies = cookies
    again = session.get(back, timeout=30)
    assert again.status_code == 403
    assert "refused this login with HTTP 400. Log in again" in again.text


def test_a_user_removed_from_the_list_is_logged_out(closed_stack: Stack, provider: Provider) -> None:
    provider.claims = {openid.CLAIM: "oskar"}
    session = local_session()
    assert log_in(closed_stack, session).ok
    assert whoami(closed_stack, session).ok
    env = (closed_stack.folder / ".env").read_text()
    change(closed_stack, fill_in(env, {ALLOWED: "olga"}))
    assert whoami(closed_stack, session).status_code == 403
    assert log_in(closed_stack, session).status_code == 403
