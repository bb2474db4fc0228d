from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import bcrypt
import pytest
from jupyterhub import orm
from nativeauthenticator.orm import UserInfo
from tornado.web import HTTPError
from traitlets.config import Config

from spawner_config.access.accounts import AccountsHandler
from spawner_config.access.logins import AccountAuthenticator, configure_logins
from spawner_config.access.passwords import PasswordHasher
from spawner_config.access.sessions import mark_token
from spawner_config.settings import SettingsError
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND

PASSWORD = "a long one, too"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4))
NATIVE = {"FARANDOLE_ADMIN": "ada", "FARANDOLE_ADMIN_PASSWORD": "a long enough one"}


def configured(environment):
    c = Config()
    configure_logins(c, environment)
    return c


def authenticator(database, **environment):
    return AccountAuthenticator(db=database, config=configured({**NATIVE, **environment}))


def test_the_link_to_sign_up_does_not_hide_the_announcement_of_the_site():
    c = Config()
    c.JupyterHub.template_vars = {"announcement": "Lunch is at noon."}
    configure_logins(c, {**NATIVE, "FARANDOLE_SIGNUP": "open"})
    assert c.JupyterHub.template_vars["announcement"] == "Lunch is at noon."
    assert c.JupyterHub.template_vars["announcement_login"].startswith('Lunch is at noon.<br><a href="/hub/signup">')


def test_operators_without_an_account_are_named_with_the_remedy(database, caplog):
    config = configured(NATIVE)
    config.AccountAuthenticator.operators = ["Ada", "olga", "no name"]
    ours = AccountAuthenticator(db=database, config=config, log=logging.getLogger())
    [olga, wrong] = [record.getMessage() for record in caplog.records if "FARANDOLE_OPERATORS" in record.getMessage()]
    assert olga.startswith("FARANDOLE_OPERATORS names 'olga', which has no account")
    assert olga.endswith("Create the account at /hub/authorize.")
    assert "'no name'" in wrong
    assert "Correct the name, which is not a user name: use at most 64 letters" in wrong
    caplog.clear()
    ours.add_account("olga")
    config.AccountAuthenticator.operators = ["olga"]
    AccountAuthenticator(db=database, config=config, log=logging.getLogger())
    assert "FARANDOLE_OPERATORS" not in caplog.text


def test_only_the_first_administrator_can_log_in(database):
    ours = authenticator(database)
    assert ours.get_user("ada").is_valid_password("a long enough one")
    assert ours.get_user("ada").is_authorized
    assert ours.get_user("grace") is None
    assert ours.admin_users == {"ada"}


async def test_a_changed_password_survives_the_next_start(database):
    assert await authenticator(database).change_password("ada", "another good one")
    ours = authenticator(database)
    assert ours.get_user("ada").is_valid_password("another good one")
    assert not ours.get_user("ada").is_valid_password("a long enough one")


@pytest.mark.parametrize("password", ["short", "1234567890", "0123456789abcdef" * 5])
def test_a_weak_first_password_is_refused_with_the_remedy(database, password):
    with pytest.raises(SettingsError, match="FARANDOLE_ADMIN_PASSWORD is too weak.*openssl rand"):
        authenticator(database, FARANDOLE_ADMIN_PASSWORD=password)


async def test_sign_up_is_closed_unless_it_is_opened(database):
    assert await authenticator(database).create_user("grace", "a long enough one") is None


async def test_a_new_account_waits_for_approval(database):
    assert not (
        await authenticator(database, FARANDOLE_SIGNUP="approval").create_user("grace", "a long one, too")
    ).is_authorized


async def test_open_sign_up_needs_no_approval(database):
    assert (
        await authenticator(database, FARANDOLE_SIGNUP="open").create_user("grace", "a long one, too")
    ).is_authorized


@pytest.mark.parametrize("name", ["ada.b", "пётр", "a@b.org", "a_b+c", "0"])
async def test_many_kinds_of_names_can_sign_up(database, name):
    assert (
        await authenticator(database, FARANDOLE_SIGNUP="open").create_user(name, "a long one, too")
    ).username == name


@pytest.mark.parametrize(
    "name", ["", "..", ".ada", "-ada", "a b", "a/b", "a%2fb", "a?b", "a#b", "<b>", "a'b", "a\nb", "a\n", "a" * 65]
)
async def test_names_with_a_meaning_in_addresses_cannot_sign_up(database, name):
    assert await authenticator(database, FARANDOLE_SIGNUP="open").create_user(name, "a long one, too") is None


async def test_names_are_not_case_sensitive(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    assert await ours.create_user("ADA", "a long one, too") is None
    assert (await ours.create_user("Grace", "a long one, too")).username == "grace"


async def test_a_locked_out_user_is_logged_out(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    account = await ours.create_user("grace", "a long one, too")
    grace = SimpleNamespace(name="grace")
    asks = SimpleNamespace(current_user=grace, get_token=lambda: "a token")
    assert await ours.refresh_user(grace, asks)
    account.is_authorized = False
    assert not await ours.refresh_user(grace, asks)


def token_of(database, user, note):
    """Create a token with this note, and return its row in the hub's database."""
    return orm.APIToken.find(database, user.new_api_token(note=note, scopes=["inherit"]))


def token_of_server(database, user):
    """Create and mark a server's token as the hub does, and return its row in the hub's database."""
    row = orm.Spawner(name="")
    database.add(row)
    row.user = user
    database.commit()
    user.db = database
    spawner = SimpleNamespace(user=user, orm_spawner=row)
    spawner.api_token = user.new_api_token(scopes=["inherit"])
    mark_token(spawner)
    return orm.APIToken.find(database, spawner.api_token)


@pytest.fixture
def added(database):
    """A hub user who has no account for password logins."""
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
    assert await passes(added, token_of_server(database, added))
    assert not await passes(added)
    assert not await passes(added, token_of(database, added, "made at /hub/token"))
    assert not await passes(added, token_of(database, added, None))
    assert not await passes(added, token_of_server(database, other))


async def test_a_note_makes_no_token_of_a_server(database, added):
    """The hub must not recognize a server's token by its note or session id alone, because users can choose both."""
    asks = SimpleNamespace(current_user=added)
    asks.get_token = lambda: token_of(database, added, "Server at /user/added/")
    assert not await authenticator(database).refresh_user(added, asks)
    database.add(orm.OAuthClient(identifier="jupyterhub-user-other"))
    database.commit()
    forged = added.new_api_token(session_id="farandole-server-1", client_id="jupyterhub-user-other", scopes=["inherit"])
    asks.get_token = lambda: orm.APIToken.find(database, forged)
    assert not await authenticator(database).refresh_user(added, asks)


async def test_open_sign_up_gives_no_access_to_an_existing_user(database, added, caplog):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    ours.log = logging.getLogger()
    assert await ours.create_user("Added", "a long one, too") is None
    assert ours.get_user("added") is None
    assert "Nobody can sign up as 'added'" in caplog.text
    assert "FARANDOLE_SIGNUP=approval" in caplog.text


async def test_an_added_user_signs_up_and_waits_for_approval(database, added):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    assert (await ours.create_user("added", "a long one, too")).is_authorized is False


async def test_sign_up_gives_no_rights_of_an_administrator(database, added):
    added.admin = True
    database.commit()
    assert await authenticator(database, FARANDOLE_SIGNUP="approval").create_user("added", "a long one, too") is None


def test_no_token_outlives_its_account(database):
    ours = authenticator(database)
    assert ours.auth_refresh_strict
    assert ours.refresh_pre_spawn


async def test_nobody_signs_up_as_the_administrator(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    ours.delete_user(SimpleNamespace(name="ada"))
    assert await ours.create_user("Ada", "a long one, too") is None


def test_no_link_authorizes_an_account(database):
    paths = dict(authenticator(database).get_handlers(None))
    ours = {"/signup", "/authorize", "/invite", "/import-accounts", "/set-password", "/save-password"}
    assert set(paths) == {*ours, "/change-password", "/change-password/([^/]+)"}
    assert paths["/authorize"] is AccountsHandler


async def test_failed_logins_lock_the_account_for_a_while(database):
    ours = authenticator(database)
    for _ in range(4):
        assert await ours.authenticate(None, {"username": "ada", "password": "wrong"}) is None
    for password in ("wrong", "a long enough one"):
        with pytest.raises(HTTPError, match="locked for 10 minutes"):
            await ours.authenticate(None, {"username": "ada", "password": password})


def let_pass(ours, name, **time):
    """Move the time of an account's last failed login back by ``time``, as if that much time had passed since then."""
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
    grace = await ours.create_user("grace", "a long one, too")
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
    await ours.create_user("grace", "a long one, too")
    for _ in range(5):
        ours.add_login_attempt("grace")
    with pytest.raises(HTTPError, match="locked for 10 minutes"):
        await ours.authenticate(None, {"username": "grace", "password": "a long one, too"})
    assert ours.is_blocked("grace")


async def test_a_login_before_the_approval_shows_that_it_is_missing(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    await ours.create_user("grace", "a long one, too")
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


@pytest.mark.parametrize("name", ["ada", "nobody"])
async def test_a_password_of_73_bytes_is_refused_alike_for_all_names(database, name, monkeypatch):
    monkeypatch.setattr(bcrypt, "checkpw", None)
    ours = authenticator(database)
    for password in ("x" * 73, "é" * 37):
        assert await ours.authenticate(None, {"username": name, "password": password}) is None


async def test_a_login_takes_as_long_without_an_account(database, monkeypatch):
    """Comparing hashes takes most of a login's time, so a login without an account compares a hash of the same cost."""
    monkeypatch.undo()  # Hashes have their usual cost here.
    costs = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda _, hashed: costs.append(hashed[:7]))
    ours = authenticator(database)
    for name in ("ada", "nobody"):
        assert await ours.authenticate(None, {"username": name, "password": "wrong"}) is None
    assert costs == [b"$2b$12$"] * 2


async def test_a_lock_does_not_tell_which_accounts_exist(database):
    ours = authenticator(database)
    for name in ("ada", "nobody"):
        for _ in range(4):
            assert await ours.authenticate(None, {"username": name, "password": "wrong"}) is None
        with pytest.raises(HTTPError, match="locked for 10 minutes"):
            await ours.authenticate(None, {"username": name, "password": "wrong"})


async def test_attempts_at_the_same_time_count_like_others(database, monkeypatch):
    compared = []
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: compared.append(1))
    ours = authenticator(database)
    asking = (ours.authenticate(None, {"username": "ada", "password": f"wrong {n}"}) for n in range(20))
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert len(compared) == 5
    assert all("locked for 10 minutes" in str(answer) for answer in answers)


async def test_a_login_with_a_password_that_is_changed_meanwhile_fails(database, monkeypatch):
    """If this login succeeded, it would remain valid, although a password change must end all earlier logins."""
    ours = authenticator(database)

    def compare(*_):
        ours.get_user("ada").password = HASH
        return True

    monkeypatch.setattr(ours.hasher, "_run", lambda _: asyncio.sleep(0, compare()))
    assert await ours.authenticate(None, {"username": "ada", "password": "a long enough one"}) is None


async def test_failures_of_names_that_nobody_has_are_forgotten(database):
    ours = authenticator(database)
    for name in ("one", "two"):
        await ours.authenticate(None, {"username": name, "password": "wrong"})
        let_pass(ours, name, minutes=11)
    await ours.authenticate(None, {"username": "three", "password": "wrong"})
    assert list(ours.login_attempts) == ["three"]


async def test_a_name_that_nobody_can_have_is_not_remembered(database):
    ours = authenticator(database)
    assert await ours.authenticate(None, {"username": "x" * 100_000, "password": "wrong"}) is None
    assert not ours.login_attempts


async def test_a_class_of_100_logs_in_at_once_on_a_small_machine(database):
    ours = authenticator(database)
    ours.hasher = PasswordHasher(threads=1)
    names = [f"student{number}" for number in range(100)]
    database.add_all(UserInfo(username=name, password=HASH, is_authorized=True) for name in names)
    database.commit()
    assert (
        await asyncio.gather(*(ours.authenticate(None, {"username": n, "password": PASSWORD}) for n in names)) == names
    )


async def test_the_hash_of_a_new_account_is_made_beside_the_event_loop(database, monkeypatch):
    threads = []
    made = bcrypt.hashpw
    monkeypatch.setattr(bcrypt, "hashpw", lambda *args: threads.append(threading.current_thread()) or made(*args))
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    threads.clear()
    assert await ours.create_user("grace", "a long one, too")
    assert await ours.change_password("grace", "another long one")
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_two_sign_ups_of_a_name_at_the_same_time_make_one_account(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    made = await asyncio.gather(*(ours.create_user("grace", f"a long one, too {n}") for n in range(2)))
    assert len([account for account in made if account]) == 1
    assert database.query(UserInfo).filter_by(username="grace").count() == 1


async def test_the_rate_of_sign_ups_is_limited(database, monkeypatch):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    ours.signups_per_hour = 2
    for name in ("emmy", "grace"):
        assert await ours.create_user(name, "a long one, too")
    with pytest.raises(HTTPError, match="429.*Too many accounts were made within the last hour. Try again later"):
        await ours.create_user("linus", "a long one, too")
    assert ours.get_user("linus") is None
    later = time.monotonic() + 3601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert await ours.create_user("linus", "a long one, too")


@pytest.mark.parametrize("signup", ["open", "approval"])
async def test_sign_ups_from_one_address_leave_room_for_others(database, monkeypatch, signup):
    ours = authenticator(database, FARANDOLE_SIGNUP=signup)
    ours.signups_per_address = 2
    for name in ("a", "b"):
        assert await ours.create_user(name, "a long one, too", address="192.0.2.1")
    with pytest.raises(HTTPError, match="429.*Too many accounts were made within the last hour"):
        await ours.create_user("c", "a long one, too", address="192.0.2.1")
    assert await ours.create_user("c", "a long one, too", address="192.0.2.2")
    later = time.monotonic() + 3601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    if signup == "approval":
        with pytest.raises(HTTPError, match="429.*Too many accounts wait for approval"):
            await ours.create_user("d", "a long one, too", address="192.0.2.1")
        ours.get_user("a").is_authorized = True
        database.commit()
    assert await ours.create_user("d", "a long one, too", address="192.0.2.1")


async def test_a_class_of_300_signs_up_from_one_address_and_others_after_it(database, monkeypatch):
    monkeypatch.setattr(bcrypt, "hashpw", lambda *_: HASH)
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    for number in range(300):
        assert await ours.create_user(f"u{number}", "a long one, too", address="192.0.2.1")
    with pytest.raises(HTTPError, match="429"):
        await ours.create_user("u300", "a long one, too", address="192.0.2.1")
    assert await ours.create_user("grace", "a long one, too", address="192.0.2.2")


async def test_sign_ups_at_the_same_time_do_not_exceed_the_limits(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    ours.signups_per_address = 1
    signing = [ours.create_user(name, "a long one, too", address="192.0.2.1") for name in ("emmy", "grace")]
    made = await asyncio.gather(*signing, return_exceptions=True)
    assert {type(each) for each in made} == {UserInfo, HTTPError}


async def test_a_sign_up_that_fails_is_not_counted(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    ours.signups_per_address = 1
    ours.hasher = PasswordHasher(threads=1, most_waiting=-1)
    with pytest.raises(HTTPError, match="429.*Too many people are logging in"):
        await ours.create_user("emmy", "a long one, too")
    ours.hasher = PasswordHasher(threads=1)
    assert await ours.create_user("emmy", "a long one, too")


async def test_the_number_of_pending_sign_ups_is_limited(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    ours.most_pending = 1
    first = await ours.create_user("emmy", "a long one, too")
    with pytest.raises(HTTPError, match="429.*Too many accounts wait for approval.*administrator to approve or"):
        await ours.create_user("grace", "a long one, too")
    first.is_authorized = True
    database.commit()
    assert await ours.create_user("grace", "a long one, too")


async def test_who_is_locked_out_does_not_count_as_pending(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="approval")
    ours.most_pending = 1
    await ours.create_user("emmy", "a long one, too")
    database.add(orm.User(name="emmy"))
    database.commit()
    assert await ours.create_user("grace", "a long one, too")


async def test_nobody_signs_up_under_a_name_with_the_slug_of_another(database):
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    assert await ours.create_user(FIRST, "a long one, too")
    with pytest.raises(HTTPError, match="403.*belongs to another user. Choose another name"):
        await ours.create_user(SECOND, "a long one, too")
    assert ours.get_user(SECOND) is None


@pytest.mark.parametrize(
    ("kind", "fields"), [(orm.User, {"name": "grace"}), (UserInfo, {"username": "grace", "password": HASH})]
)
async def test_nobody_signs_up_under_a_name_with_the_host_of_another(database, kind, fields, monkeypatch):
    """The test replaces `host_label`, because no two names with the same host are known.

    A name that is not a valid host gets a host with 160 bits of a hash.
    """
    monkeypatch.setattr("spawner_config.origins.hosts.host_label", lambda name, _kind="user": name.strip("_"))
    ours = authenticator(database, FARANDOLE_SIGNUP="open")
    database.add(kind(**fields))
    database.commit()
    assert await ours.create_user("grace_", "a long one, too") is None
    assert ours.get_user("grace_") is None
    assert await ours.create_user("emmy_", "a long one, too")


async def test_a_login_under_a_name_with_the_slug_of_another_is_refused(database):
    ours = authenticator(database)
    database.add_all([orm.User(name=FIRST), UserInfo(username=SECOND, password=HASH, is_authorized=True)])
    database.commit()
    with pytest.raises(HTTPError, match="403.*belongs to another user"):
        await ours.get_authenticated_user(None, {"username": SECOND, "password": PASSWORD})


async def test_a_user_with_the_slug_of_an_older_one_gets_no_server(database):
    """Such a user may have been added by an administrator, or by a version of the hub that did not compare slugs."""
    ours = authenticator(database)
    for name in (FIRST, SECOND):
        database.add(orm.User(name=name))
        database.add(UserInfo(username=name, password=HASH, is_authorized=True))
        database.commit()
    assert await ours.refresh_user(SimpleNamespace(name=FIRST), None)
    with pytest.raises(HTTPError, match="403.*belongs to another user"):
        await ours.refresh_user(SimpleNamespace(name=SECOND), None)
