"""Tests for the limit on the number of a user's tokens, with a real JupyterHub database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from jupyterhub import orm, roles
from sqlalchemy import event
from tornado.web import HTTPError
from traitlets.config import Config

from spawner_config.access.sessions import MARK, mark_of
from spawner_config.limits.tokens import TokenLimit, scopes_of_server
from spawner_config.profiles.limits import Limits
from tests.unit.spawner_config.access.test_accounts import Hub

FEW, MOST = 5, 12
LOGIN = {"client_id": "jupyterhub-user-mallory", "session_id": "of a browser", "expires_in": 14 * 24 * 3600}
"""The fields of a token that a browser gets when it opens a server."""


@pytest.fixture
def limit() -> Iterator[TokenLimit]:
    limit = TokenLimit(Limits())
    limit.requested, limit.most = FEW, MOST
    limit.enforce()
    yield limit
    event.remove(orm.APIToken.user, "set", limit.check)


@pytest.fixture
def db(limit: TokenLimit) -> Iterator[Any]:
    session = orm.new_session_factory("sqlite:///:memory:")()
    session.add_all(orm.OAuthClient(identifier=name) for name in ("jupyterhub", LOGIN["client_id"]))
    for role in roles.get_default_roles():
        roles.create_role(session, role, commit=False)
    session.commit()
    yield session
    session.close()


def user(db: Any, name: str) -> orm.User:
    found = orm.User(name=name)
    db.add(found)
    db.commit()
    roles.assign_default_roles(db, found)
    return found


@pytest.mark.parametrize(("workers", "endpoints", "most"), [(1, 0, 108), (16, 4, 184), (256, 4, 1144)])
def test_a_user_with_many_servers_may_have_more_tokens(workers: int, endpoints: int, most: int) -> None:
    assert TokenLimit(Limits(workers_per_user=workers, notebooks_per_user=1, endpoints_per_user=endpoints)).most == most


def test_the_number_of_tokens_of_a_user_is_limited(db: Any) -> None:
    mallory, ada = user(db, "mallory"), user(db, "ada")
    made = [mallory.new_api_token(note="x") for _ in range(FEW)]
    for _ in range(3):
        with pytest.raises(HTTPError, match="mallory has requested 5 tokens.*Delete some at /hub/token") as caught:
            mallory.new_api_token()
        assert caught.value.status_code == 400
    db.commit()
    assert db.query(orm.APIToken).count() == FEW
    assert ada.new_api_token()
    db.delete(orm.APIToken.find(db, made[0]))
    db.commit()
    assert mallory.new_api_token()


def test_a_long_note_is_refused_and_not_stored(db: Any) -> None:
    mallory = user(db, "mallory")
    long_session = {**LOGIN, "session_id": "x" * 14_000}
    for long in ({"note": "x" * 5000}, {"scopes": ["inherit"] * 500}, long_session):
        with pytest.raises(HTTPError, match="may have 4096 characters, and these have"):
            mallory.new_api_token(**long)
    db.commit()
    assert db.query(orm.APIToken).count() == 0
    assert mallory.new_api_token(note="x" * 4000)


def test_expired_tokens_make_room(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mallory = user(db, "mallory")
    for _ in range(FEW):
        mallory.new_api_token(expires_in=10)
    now = orm.utcnow()
    monkeypatch.setattr(orm, "utcnow", lambda: now.replace(year=now.year + 1))
    assert mallory.new_api_token()
    assert db.query(orm.APIToken).count() == 1


def count(db: Any) -> int:
    found: int = db.query(orm.APIToken).count()
    return found


def test_logins_of_browsers_take_the_place_of_older_ones_and_keep_out_nothing(db: Any) -> None:
    mallory, ada = user(db, "mallory"), user(db, "ada")
    others = ada.new_api_token(**LOGIN)
    logins = [mallory.new_api_token(**LOGIN) for _ in range(200)]
    assert count(db) == MOST + 1
    token = mallory.new_api_token(note="of a driver", session_id=f"{MARK}1")
    last = mallory.new_api_token(**LOGIN)
    requested = mallory.new_api_token()
    assert count(db) == MOST + 1
    kept = [*logins[-MOST + 3 :], token, last, requested, others]
    assert all(orm.APIToken.find(db, each) for each in kept)
    assert not any(orm.APIToken.find(db, each) for each in logins[: -MOST + 3])
    db.delete(mallory)
    db.commit()
    assert count(db) == 1


def test_requested_tokens_leave_room_for_logins_and_servers(db: Any) -> None:
    mallory = user(db, "mallory")
    requested = [mallory.new_api_token() for _ in range(FEW)]
    for _ in range(2 * MOST):
        mallory.new_api_token(**LOGIN)
        with pytest.raises(HTTPError, match="has requested 5 tokens"):
            mallory.new_api_token()
    assert count(db) == MOST
    assert all(orm.APIToken.find(db, each) for each in requested)


async def test_a_server_gets_its_token_whatever_its_user_has(limit: TokenLimit, database: Any) -> None:
    """JupyterHub's own code starts the server and creates its token. Only the server is fake, and its start fails."""
    hub = Hub(database)
    database.add(orm.OAuthClient(identifier=LOGIN["client_id"]))
    for role in roles.get_default_roles():
        roles.create_role(database, role)
    mallory = hub.user("mallory")
    spawner = mallory.get_or_create_spawner("c-w0", "")
    spawner.update_config(Config({"Spawner": {"server_token_scopes": scopes_of_server}}))
    tokens: list[str] = []

    async def start() -> None:
        [token] = database.query(orm.APIToken).filter_by(session_id=mark_of(spawner))
        tokens.append(token.note)
        raise NotImplementedError

    spawner.start = start
    while count(database) < FEW:
        mallory.new_api_token(scopes=["inherit"])
    for _ in range(200):
        mallory.new_api_token(scopes=["inherit"], **LOGIN)
    with pytest.raises(NotImplementedError):
        await asyncio.create_task(mallory.spawn("c-w0"))
    assert tokens == ["Server at /user/mallory/c-w0/"]
    # Outside the task that starts the server, a token counts towards the limit even if it has a server token's note.
    with pytest.raises(HTTPError, match="has requested 5 tokens"):
        mallory.new_api_token(note=tokens[0], scopes=["inherit"])
    assert mallory.new_api_token(scopes=["inherit"], **LOGIN)
    assert count(database) == MOST


def test_a_token_that_loses_its_user_is_no_new_one(db: Any) -> None:
    token = orm.APIToken.find(db, user(db, "mallory").new_api_token())
    token.user = None
    assert token.user is None
