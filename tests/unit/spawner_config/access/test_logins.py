from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest
from jupyterhub import orm
from tornado.web import HTTPError
from traitlets.config import Config

from spawner_config.access.accounts import AccountsHandler
from spawner_config.access.logins import AccountAuthenticator, configure_logins
from spawner_config.settings import SettingsError

NATIVE = {"FARANDOLE_ADMIN": "ada", "FARANDOLE_ADMIN_PASSWORD": "a long enough one"}


def configured(environment):
    c = Config()
    configure_logins(c, environment)
    return c


@pytest.fixture
def database(tmp_path):
    factory = orm.new_session_factory(f"sqlite:///{tmp_path}/hub.sqlite")
    session = factory()
    yield session
    session.close()
    session.bind.dispose()


def authenticator(database, **environment):
    return AccountAuthenticator(db=database, config=configured({**NATIVE, **environment}))


def test_only_the_first_administrator_can_log_in(database):
    ours = authenticator(database)
    assert ours.get_user("ada").is_valid_password("a long enough one")
    assert ours.get_user("ada").is_authorized
    assert ours.get_user("grace") is None
    assert ours.admin_users == {"ada"}


def test_a_changed_password_outlives_the_next_start(database):
    assert authenticator(database).change_password("ada", "another good one")
    ours = authenticator(database)
    assert ours.get_user("ada").is_valid_password("another good one")
    assert not ours.get_user("ada").is_valid_password("a long enough one")


@pytest.mark.parametrize("password", ["short", "1234567890", "0123456789abcdef" * 5])
def test_a_weak_first_password_is_refused_with_the_remedy(database, password):
    with pytest.raises(SettingsError, match="FARANDOLE_ADMIN_PASSWORD is too weak.*openssl rand"):
        authenticator(database, FARANDOLE_ADMIN_PASSWORD=password)


def test_sign_up_is_closed_unless_it_is_opened(database):
    assert authenticator(database).create_user("grace", "a long enough one") is None


def test_who_signs_up_waits_for_approval(database):
    assert (
        not authenticator(database, FARANDOLE_SIGNUP="approval").create_user("grace", "a long one, too").is_authorized
    )


def test_open_sign_up(database):
    assert authenticator(database, FARANDOLE_SIGNUP="open").create_user("grace", "a long one, too").is_authorized


@pytest.mark.parametrize("name", ["ada.b", "пётр", "a@b.org", "a_b+c", "0"])
def test_names_of_many_kinds_can_sign_up(database, name):
    assert authenticator(database, FARANDOLE_SIGNUP="open").create_user(name, "a long one, too").username == name


@pytest.mark.parametrize(
    "name", ["", "..", ".ada", "-ada", "a b", "a/b", "a%2fb", "a?b", "a#b", "<b>", "a'b", "a\nb", "a\n", "a" * 65]
)
def test_names_that_an_address_would_take_for_its_own_cannot(database, name):
    assert authenticator(database, FARANDOLE_SIGNUP="open").create_user(name, "a long one, too") is None


def test_capitals_make_no_second_account(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    assert ours.create_user("ADA", "a long one, too") is None
    assert ours.create_user("Grace", "a long one, too").username == "grace"


async def test_a_locked_out_user_is_logged_out(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    account = ours.create_user("grace", "a long one, too")
    grace = SimpleNamespace(name="grace")
    asks = SimpleNamespace(current_user=grace, get_token=lambda: "a token")
    assert await ours.refresh_user(grace, asks)
    account.is_authorized = False
    assert not await ours.refresh_user(grace, asks)


def token_of(database, user, note):
    """Return a token as the hub stores it."""
    return orm.APIToken.find(database, user.new_api_token(note=note, scopes=["inherit"]))


@pytest.fixture
def added(database):
    """A user of the hub without an account."""
    database.add(orm.OAuthClient(identifier="jupyterhub"))
    user = orm.User(name="added")
    database.add(user)
    database.commit()
    return user


async def test_without_an_account_only_the_tokens_of_servers_work(database, added):
    ours = authenticator(database)
    other = orm.User(name="other")
    database.add(other)
    database.commit()

    async def passes(asks, token=None):
        return await ours.refresh_user(added, SimpleNamespace(current_user=asks, get_token=lambda: token))

    assert await passes(other)
    assert await passes(added, token_of(database, added, "Server at /user/added/"))
    assert not await passes(added)
    assert not await passes(added, token_of(database, added, "made at /hub/token"))
    assert not await passes(added, token_of(database, added, None))
    assert not await passes(added, token_of(database, other, "Server at /user/other/"))


def test_open_sign_up_gives_nobody_what_a_user_of_the_hub_has(database, added, caplog):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    ours.log = logging.getLogger()
    assert ours.create_user("Added", "a long one, too") is None
    assert ours.get_user("added") is None
    assert "Nobody can sign up as 'added'" in caplog.text
    assert "FARANDOLE_SIGNUP=approval" in caplog.text


def test_who_was_added_signs_up_and_waits_for_approval(database, added):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    assert ours.create_user("added", "a long one, too").is_authorized is False


def test_nobody_asks_for_the_rights_of_an_administrator_by_signing_up(database, added):
    added.admin = True
    database.commit()
    assert authenticator(database, FARANDOLE_SIGNUP="approval").create_user("added", "a long one, too") is None


def test_no_token_outlives_its_account(database):
    ours = authenticator(database)
    assert ours.auth_refresh_strict
    assert ours.refresh_pre_spawn


def test_nobody_signs_up_as_the_administrator(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    ours.delete_user(SimpleNamespace(name="ada"))
    assert ours.create_user("Ada", "a long one, too") is None


def test_no_link_authorizes_an_account(database):
    paths = dict(authenticator(database).get_handlers(None))
    assert set(paths) == {"/signup", "/authorize", "/change-password", "/change-password/([^/]+)"}
    assert paths["/authorize"] is AccountsHandler


async def test_failed_logins_lock_the_account_for_a_while(database):
    ours = authenticator(database)
    for _ in range(4):
        assert await ours.authenticate(None, {"username": "ada", "password": "wrong"}) is None
    for password in ("wrong", "a long enough one"):
        with pytest.raises(HTTPError, match="locked for 10 minutes"):
            await ours.authenticate(None, {"username": "ada", "password": password})


def let_pass(ours, name, **time):
    """Make the failed logins of an account as old as ``time``."""
    ours.login_attempts[name]["time"] -= timedelta(**time)


@pytest.mark.parametrize("time", [{"minutes": 10, "seconds": 1}, {"days": 1, "seconds": 1}])
async def test_a_lock_opens_after_a_while_and_the_next_failure_does_not_close_it(database, time):
    ours = authenticator(database)
    for _ in range(5):
        ours.add_login_attempt("ada")
    assert ours.is_blocked("ada")
    let_pass(ours, "ada", **time)
    assert await ours.authenticate(None, {"username": "ada", "password": "wrong"}) is None
    assert await ours.authenticate(None, {"username": "ada", "password": "a long enough one"}) == "ada"


async def test_old_failures_do_not_count(database):
    ours = authenticator(database)
    for _ in range(4):
        ours.add_login_attempt("ada")
    let_pass(ours, "ada", days=7)
    assert await ours.authenticate(None, {"username": "ada", "password": "wrong"}) is None


async def test_failed_logins_before_the_approval_do_not_lock_the_account(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    grace = ours.create_user("grace", "a long one, too")
    login = {"username": "Grace", "password": "a long one, too"}
    for _ in range(4):
        ours.add_login_attempt("grace")
    for _ in range(6):
        with pytest.raises(HTTPError, match="has not approved"):
            await ours.authenticate(None, login)
    grace.is_authorized = True
    assert await ours.authenticate(None, {**login, "password": "wrong"}) is None
    assert await ours.authenticate(None, login) == "grace"


async def test_the_right_password_does_not_end_a_lock(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    ours.create_user("grace", "a long one, too")
    for _ in range(5):
        ours.add_login_attempt("grace")
    with pytest.raises(HTTPError, match="locked for 10 minutes"):
        await ours.authenticate(None, {"username": "grace", "password": "a long one, too"})
    assert ours.is_blocked("grace")


async def test_a_login_before_the_approval_shows_that_it_is_missing(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    ours.create_user("grace", "a long one, too")
    assert await ours.authenticate(None, {"username": "grace", "password": "wrong"}) is None
    with pytest.raises(HTTPError, match="has not approved"):
        await ours.authenticate(None, {"username": "grace", "password": "a long one, too"})


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "FARANDOLE_ADMIN is not set"),
        ({"FARANDOLE_ADMIN": "ada"}, "FARANDOLE_ADMIN_PASSWORD is not set"),
        ({**NATIVE, "FARANDOLE_LOGIN": "ldap"}, "one of: native, github, google, generic"),
        ({**NATIVE, "FARANDOLE_SIGNUP": "yes"}, "one of: closed, approval, open"),
    ],
)
def test_an_invalid_setting_is_named_with_the_remedy(environment, words):
    with pytest.raises(SettingsError, match=words):
        configured(environment)
