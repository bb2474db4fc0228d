"""The number of a user's tokens, in a real database of JupyterHub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jupyterhub import orm, roles
from sqlalchemy import event
from tornado.web import HTTPError

from spawner_config.limits.tokens import TokenLimit
from spawner_config.profiles.limits import Limits

FEW = 5


@pytest.fixture
def db() -> Iterator[Any]:
    session = orm.new_session_factory("sqlite:///:memory:")()
    session.add(orm.OAuthClient(identifier="jupyterhub"))
    for role in roles.get_default_roles():
        roles.create_role(session, role, commit=False)
    session.commit()
    limit = TokenLimit(Limits())
    limit.most = FEW
    limit.enforce()
    yield session
    event.remove(orm.APIToken.user, "set", limit.check)
    session.close()


def user(db: Any, name: str) -> orm.User:
    found = orm.User(name=name)
    db.add(found)
    db.commit()
    roles.assign_default_roles(db, found)
    return found


@pytest.mark.parametrize(("workers", "notebooks", "most"), [(1, 1, 108), (16, 3, 176), (256, 4, 1140)])
def test_a_user_with_many_workers_may_have_more_tokens(workers: int, notebooks: int, most: int) -> None:
    assert TokenLimit(Limits(workers_per_user=workers, notebooks_per_user=notebooks)).most == most


def test_the_number_of_tokens_of_a_user_is_limited(db: Any) -> None:
    mallory, ada = user(db, "mallory"), user(db, "ada")
    made = [mallory.new_api_token(note="x") for _ in range(FEW)]
    for _ in range(3):
        with pytest.raises(HTTPError, match="mallory has 5 tokens.*Delete some at /hub/token") as caught:
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
    for long in ({"note": "x" * 5000}, {"scopes": ["inherit"] * 500}):
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
