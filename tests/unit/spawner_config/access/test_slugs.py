"""Tests for slugs. `FIRST` and `SECOND` have the same slug, and were found by trying several thousand names."""

from __future__ import annotations

import pytest
from jupyterhub import orm
from jupyterhub.slugs import safe_slug
from nativeauthenticator.orm import UserInfo
from tornado.web import HTTPError

from spawner_config.access.slugs import check_slug, slug_holder
from spawner_config.containers.names import container_name, slug

FIRST, SECOND = "ada.lovelace@laboratory15274", "ada.lovelace@laboratory18422"


def user(database, name):
    database.add(orm.User(name=name))
    database.commit()


def account(database, name):
    database.add(UserInfo(username=name, password=b"x"))
    database.commit()


def test_the_pair_would_share_a_home_and_a_network_on_every_deployment():
    assert slug(FIRST) == slug(SECOND)
    assert container_name("farandole-server", FIRST, "c-w0") == container_name("farandole-server", SECOND, "c-w0")


def test_a_slug_belongs_to_the_oldest_user_else_to_the_oldest_account(database):
    account(database, SECOND)
    account(database, FIRST)
    assert slug_holder(database, FIRST) == SECOND
    user(database, FIRST)
    user(database, SECOND)
    assert slug_holder(database, SECOND) == FIRST
    check_slug(database, FIRST)
    with pytest.raises(HTTPError, match=f"403.*{SECOND}.*cannot be used here.*Choose another name"):
        check_slug(database, SECOND)


def test_the_other_name_is_in_the_log_only(database, caplog):
    user(database, FIRST)
    with pytest.raises(HTTPError) as refused:
        check_slug(database, SECOND)
    assert FIRST not in str(refused.value)
    assert f"would be those of {FIRST!r}" in caplog.text


def test_a_short_plain_name_is_its_own_slug_at_every_length(database):
    user(database, "grace")
    assert all(safe_slug("grace", max_length=length) == "grace" for length in range(10, 50))
    assert slug_holder(database, "grace") is None


def test_a_name_that_nobody_has_is_free(database):
    user(database, FIRST)
    check_slug(database, "ada.lovelace@laboratory")
