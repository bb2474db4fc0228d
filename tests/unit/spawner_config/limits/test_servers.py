"""Tests for the limit on the number of a user's named servers, with a real JupyterHub database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.user import User
from tornado.web import HTTPError

from spawner_config.limits.servers import NamedServerLimit
from spawner_config.profiles.limits import Limits

LIMIT = NamedServerLimit(Limits(workers_per_user=1, notebooks_per_user=1, endpoints_per_user=1, ranks_per_worker=1))


@pytest.fixture
def ada() -> Iterator[Callable[..., User]]:
    """Return a function that creates the user ada with these named servers. Servers without a spawner are stopped."""
    session = orm.new_session_factory("sqlite:///:memory:")()

    def with_servers(*names: str, **spawners: Any) -> User:
        record = orm.User(name="ada")
        session.add(record)
        session.commit()
        user = User(record, {}, session)
        for name in names:
            user._new_orm_spawner(name, name)
        user.spawners.update({name.replace("_", "-"): spawner for name, spawner in spawners.items()})
        return user

    yield with_servers
    session.close()


def asks(user: User, *path: str) -> Any:
    return SimpleNamespace(path_args=list(path), find_user={"ada": user}.get, current_user=user)


def test_a_user_has_no_more_named_servers_than_the_limits_of_all_roles(ada: Callable[..., User]) -> None:
    user = ada("one", "two", "three")
    assert LIMIT(asks(user, "ada", "four")) == 3
    # Only the records of stopped workers are removed to make room, and these servers are not workers.
    assert set(user.orm_spawners) == {"", "one", "two", "three"}


def test_records_of_stopped_workers_and_endpoints_make_room_for_new_ones(ada: Callable[..., User]) -> None:
    user = ada("old-w0", "old-w1", "serve-iris", "paper", old_w1=SimpleNamespace(active=True))
    assert LIMIT(asks(user, "ada", "new-w0")) == 3
    assert set(user.orm_spawners) == {"", "old-w1", "paper"}


def test_refused_workers_make_room_and_failed_ones_stay(ada: Callable[..., User]) -> None:
    refused = SimpleNamespace(active=False, _failed=HTTPError(400, "That makes 7 workers"))
    failed = SimpleNamespace(active=False, _failed=TimeoutError("The image was not pulled"))
    user = ada("old-w0", "old-w1", "old-w2", "paper", old_w0=refused, old_w1=refused, old_w2=failed)
    assert LIMIT(asks(user, "ada", "new-w0")) == 3
    assert set(user.orm_spawners) == {"", "old-w2", "paper"}
    assert set(user.spawners) == {"old-w2"}


def test_records_stay_while_there_is_room(ada: Callable[..., User]) -> None:
    user = ada("old-w0", "old-w1")
    assert LIMIT(asks(user, "ada", "new-w0")) == 3
    assert set(user.orm_spawners) == {"", "old-w0", "old-w1"}


def test_the_home_page_and_unknown_users_have_the_same_limit(ada: Callable[..., User]) -> None:
    user = ada()
    assert LIMIT(asks(user)) == LIMIT(asks(user, "nobody", "x")) == 3
