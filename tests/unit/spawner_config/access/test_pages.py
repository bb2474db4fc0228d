"""Tests for the account pages with a real database. Only the request and the rendering of pages are faked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tornado.web import HTTPError

from spawner_config.access.pages import ChangePasswordPage, SignUpPage, change_password
from tests.unit.spawner_config.access.test_accounts import Hub
from tests.unit.spawner_config.access.test_sessions import start

OLD, NEW = "a long one, too", "another long one"


class Request:
    """A request with the fields of a form. ``shown`` holds the values that were passed to the page's template."""

    def __init__(self, hub, user, **form):
        self.authenticator, self.users, self.db = hub.authenticator, hub.users, hub.database
        self.current_user, self.form = user, form
        self.shown, self.cookie = None, None
        self.request = SimpleNamespace(remote_ip="192.0.2.1", headers={})

    def get_body_argument(self, key, *, strip):
        assert not strip
        return self.form[key]

    async def render_template(self, _name, **shown):
        self.shown = shown

    def finish(self, _page):
        pass

    def set_login_cookie(self, user):
        self.cookie = user.cookie_id

    get_result_message = SignUpPage.get_result_message


@pytest.fixture
def hub(database):
    return Hub(database)


@pytest.fixture
async def grace(hub):
    await hub.account("grace")
    return hub.user("grace")


async def submit(hub, user, old, new, again=None):
    fields = {"old_password": old, "new_password": new, "new_password_confirmation": again or new}
    request = Request(hub, user, **fields)
    await ChangePasswordPage.post(request)
    return request


async def test_a_new_password_ends_the_tokens_and_other_logins_of_its_user(hub, grace):
    spawner = start(grace, "")
    hub.run_server(grace, "")
    before = grace.cookie_id
    request = await submit(hub, grace, OLD, NEW)
    assert "changed successfully" in request.shown["result_message"]
    assert [token.session_id for token in grace.api_tokens] == [f"farandole-server-{spawner.orm_spawner.id}"]
    assert grace.cookie_id != before
    assert request.cookie == grace.cookie_id
    assert await hub.authenticator.find_account("grace", NEW)
    assert await hub.authenticator.find_account("grace", OLD) is None


@pytest.mark.parametrize(
    ("old", "new", "again", "words"),
    [
        ("wrong", NEW, NEW, "current password was incorrect"),
        ("x" * 73, NEW, NEW, "current password was incorrect"),
        (OLD, NEW, "something else", "didn't match"),
        (OLD, "short", "short", "10 characters or more"),
        (OLD, "x" * 73, "x" * 73, "72 bytes or fewer"),
    ],
)
async def test_a_change_that_is_refused_ends_nothing(hub, grace, old, new, again, words):
    request = await submit(hub, grace, old, new, again)
    assert words in request.shown["result_message"]
    assert hub.tokens() == ["grace"]
    assert await hub.authenticator.find_account("grace", OLD)


async def test_the_current_password_cannot_be_guessed_with_a_stolen_login(hub, grace):
    for _ in range(4):
        await submit(hub, grace, "wrong", NEW)
    for password in ("wrong", OLD):
        with pytest.raises(HTTPError, match="403.*locked for 10 minutes"):
            await submit(hub, grace, password, NEW)


async def test_a_reset_ends_the_tokens_of_the_user_and_not_those_of_the_administrator(hub, grace):
    ada = hub.user("ada")
    request = Request(hub, ada, new_password=NEW, new_password_confirmation=NEW)
    assert await change_password(request, "Grace") is None
    assert hub.tokens() == ["ada"]
    assert request.cookie is None


async def test_a_reset_before_the_first_login_changes_the_password(hub):
    await hub.account("grace")
    request = Request(hub, hub.user("ada"), new_password=NEW, new_password_confirmation=NEW)
    assert await change_password(request, "grace") is None
    assert await hub.authenticator.find_account("grace", NEW)


async def test_a_sign_up_shows_its_result(hub):
    shown = []
    for password in (OLD, "short"):
        form = {"username": "emmy" if password == OLD else "grace", "signup_password": password}
        request = Request(hub, None, **form, signup_password_confirmation=password)
        await SignUpPage.post(request)
        shown.append(request.shown["result_message"])
    assert "sent to the admin" in shown[0]
    assert "Something went wrong" in shown[1]
    assert hub.authenticator.get_user("grace") is None
    assert [hub.authenticator.sign_ups.count(address) for address in ("192.0.2.1", "192.0.2.2")] == [1, 0]


async def test_closed_sign_up_takes_no_form(hub):
    hub.authenticator.enable_signup = False
    with pytest.raises(HTTPError, match="404"):
        await SignUpPage.post(Request(hub, None))
