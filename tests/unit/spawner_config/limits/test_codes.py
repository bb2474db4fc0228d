"""Tests for the limits on a user's OAuth codes, with a real JupyterHub database and JupyterHub's own handlers."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from jupyterhub import orm
from jupyterhub.apihandlers.auth import OAuthAuthorizeHandler
from jupyterhub.handlers.base import BaseHandler
from jupyterhub.oauth.provider import JupyterHubRequestValidator
from sqlalchemy import event
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import Application, HTTPError

from spawner_config.limits.codes import MOST_CODES, check_challenge, limit_codes, make_room

CLIENT = "jupyterhub-user-mallory"
TABS = 40
"""The number of tabs that a browser with a session may open at once."""


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # This restores JupyterHub's method after the test.
    monkeypatch.setattr(BaseHandler, "get_session_cookie", BaseHandler.get_session_cookie)
    limit_codes()
    yield
    event.remove(orm.OAuthCode.code_challenge, "set", check_challenge)
    event.remove(orm.OAuthCode.user, "set", make_room)


@pytest.fixture
def db() -> Iterator[Any]:
    session = orm.new_session_factory("sqlite:///:memory:")()
    session.add(orm.OAuthClient(identifier=CLIENT, redirect_uri="/user/mallory/oauth_callback"))
    session.add_all(orm.User(name=name) for name in ("ada", "mallory"))
    session.commit()
    yield session
    session.close()


def save(db: Any, code: str, user: str = "mallory", **more: Any) -> None:
    """Store a code as JupyterHub does when a browser opens the user's server."""
    fields = {"code_challenge": None, "code_challenge_method": None, "scopes": {"inherit"}, "session_id": "ab" * 16}
    request = SimpleNamespace(user=SimpleNamespace(orm_user=orm.User.find(db, user)), **{**fields, **more})
    JupyterHubRequestValidator(db).save_authorization_code(CLIENT, {"code": code}, request)


def stored(db: Any) -> list[str]:
    return [code for (code,) in db.query(orm.OAuthCode.code).order_by(orm.OAuthCode.id)]


def handler_of(cookie: str = "") -> Any:
    headers = HTTPHeaders({"Cookie": f"jupyterhub-session-id={cookie}"} if cookie else {})
    request = HTTPServerRequest(method="GET", uri="/hub/api/oauth2/authorize", headers=headers, connection=Mock())
    handler = OAuthAuthorizeHandler(Application(hub=SimpleNamespace(base_url="/hub/")), request)
    handler._jupyterhub_user = None
    return handler


def test_a_user_has_a_limited_number_of_codes(db: Any) -> None:
    save(db, "of ada", "ada")
    for number in range(3 * MOST_CODES):
        save(db, f"code{number}")
    assert stored(db) == ["of ada", *(f"code{number}" for number in range(2 * MOST_CODES, 3 * MOST_CODES))]
    db.delete(orm.User.find(db, "mallory"))
    db.commit()
    assert stored(db) == ["of ada"]


def test_all_tabs_that_a_browser_opens_at_once_can_exchange_their_codes(db: Any) -> None:
    for number in range(TABS):
        save(db, f"tab{number}")
    validator, client = JupyterHubRequestValidator(db), SimpleNamespace(client_id=CLIENT)
    for number in range(TABS):
        assert validator.validate_code(CLIENT, f"tab{number}", client, SimpleNamespace())
        validator.invalidate_authorization_code(CLIENT, f"tab{number}", SimpleNamespace())
    assert stored(db) == []


def test_expired_codes_are_deleted_with_the_next_code(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ada", "mallory"):
        save(db, f"old code of {name}", name)
    later = orm.OAuthCode.now() + 400
    monkeypatch.setattr(orm.OAuthCode, "now", lambda: later)
    save(db, "new")
    assert stored(db) == ["old code of ada", "new"]


def test_a_long_challenge_is_refused_and_not_stored(db: Any) -> None:
    with pytest.raises(HTTPError, match="may have 128 characters, and this one has 14000") as caught:
        save(db, "long", code_challenge="x" * 14_000)
    assert caught.value.status_code == 400
    save(db, "short", code_challenge="x" * 43)
    assert stored(db) == ["short"]


@pytest.mark.parametrize("cookie", ["x" * 14_000, "farandole-server-1", "AB" * 16, "ab" * 17, ""])
def test_a_session_id_that_the_hub_has_not_made_is_replaced(cookie: str) -> None:
    handler = handler_of(cookie)
    made = handler.add_credentials()["session_id"]
    assert (len(made), made == cookie) == (32, False)
    # The hub recognizes its own session id in this request and in the next ones.
    assert handler.get_session_cookie() == made
    assert handler_of(made).get_session_cookie() == made


def test_a_code_that_loses_its_user_is_no_new_one(db: Any) -> None:
    save(db, "lost")
    code = orm.OAuthCode.find(db, "lost")
    code.user = None
    assert code.user is None
