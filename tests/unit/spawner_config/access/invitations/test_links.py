"""Tests for one-time links in a real database."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from nativeauthenticator.orm import UserInfo
from sqlalchemy import text
from tornado.web import HTTPError

from spawner_config.access.invitations.links import make_secret, name_of, valid_until
from tests.unit.spawner_config.access.test_accounts import Hub
from tests.unit.spawner_config.access.test_logins import authenticator
from tests.unit.spawner_config.access.test_slugs import FIRST, SECOND

NEW = "another long one"


@pytest.fixture
def ours(database):
    return authenticator(database)


@pytest.fixture
def secret(ours):
    ours.add_account("grace")
    return ours.make_link("grace")


def test_the_database_has_only_the_hash_of_a_secret(ours, secret, database):
    assert len(secret) >= 43
    rows = [str(row) for row in database.execute(text("SELECT * FROM farandole_invitations"))]
    assert len(rows) == 1
    assert secret not in rows[0]
    assert name_of(database, secret) == "grace"


async def test_a_link_sets_a_password_once(ours, secret):
    assert await ours.change_password("grace", NEW, secret=secret)
    assert await ours.authenticate(None, {"username": "grace", "password": NEW}) == "grace"
    with pytest.raises(HTTPError, match="403.*not valid"):
        await ours.change_password("grace", "a third long one", secret=secret)


async def test_a_password_that_is_set_with_a_link_ends_the_lock_after_failed_logins(ours, secret):
    for _ in range(5):
        ours.add_login_attempt("grace")
    assert ours.is_blocked("grace")
    assert await ours.change_password("grace", NEW, secret=secret)
    assert await ours.authenticate(None, {"username": "grace", "password": NEW}) == "grace"


async def test_of_two_requests_with_one_link_only_one_sets_the_password(ours, secret):
    both = [ours.change_password("grace", f"{NEW} {number}", secret=secret) for number in range(2)]
    results = await asyncio.gather(*both, return_exceptions=True)
    assert {type(result) for result in results} == {bool, HTTPError}


@pytest.mark.parametrize("password", ["", " ", NEW])
async def test_an_account_without_a_password_accepts_none(ours, secret, password):
    del secret
    assert await ours.authenticate(None, {"username": "grace", "password": password}) is None


async def test_a_password_that_is_refused_leaves_the_link_valid(ours, secret):
    assert not await ours.change_password("grace", "short", secret=secret)
    assert ours.account_of_link(secret).username == "grace"


def test_a_link_expires(ours, secret, database, monkeypatch):
    later = time.time() + ours.link_days * 86400 + 1
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(HTTPError, match="403.*not valid"):
        ours.account_of_link(secret)
    assert valid_until(database) == {}
    make_secret(database, "ada", 1)
    assert database.execute(text("SELECT username FROM farandole_invitations")).all() == [("ada",)]


def test_a_new_link_ends_the_earlier_one(ours, secret, database):
    new = ours.make_link("grace")
    assert [name_of(database, each) for each in (secret, new)] == [None, "grace"]


async def test_a_password_from_the_administrator_ends_the_link(ours, secret, database):
    assert await ours.change_password("grace", NEW)
    assert name_of(database, secret) is None


def test_a_later_account_with_the_name_does_not_get_the_link(ours, secret):
    ours.delete_user(SimpleNamespace(name="grace"))
    ours.add_account("grace")
    with pytest.raises(HTTPError, match="403"):
        ours.account_of_link(secret)


async def test_a_lock_out_ends_the_link(database):
    hub = Hub(database)
    account = await hub.account("grace")
    secret = hub.authenticator.make_link("grace")
    await hub.change(account, "lock-out")
    await hub.change(account, "approve")
    assert name_of(database, secret) is None


def test_all_wrong_links_have_one_answer(ours, secret):
    answers = set()
    for wrong in ("", "x", secret[:-1], secret.swapcase()):
        with pytest.raises(HTTPError) as refused:
            ours.account_of_link(wrong)
        answers.add(str(refused.value))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "is not a user name"),
        ("a b", "is not a user name"),
        ("=cmd()", "is not a user name"),
        ("ada", "has an account"),
        (SECOND, f"would get the home and network of the user '{FIRST}'"),
    ],
)
def test_names_are_refused_as_everywhere(ours, database, name, reason):
    database.add(UserInfo(username=FIRST, password=b"x"))
    database.commit()
    assert reason in ours.refusal(name)
    assert ours.refusal("grace") is None
