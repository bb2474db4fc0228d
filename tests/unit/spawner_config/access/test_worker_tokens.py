"""Tests for the token that drivers use to connect to a worker, with a real database and the hub's own users."""

from __future__ import annotations

import pytest
from jupyterhub import orm
from jupyterhub.roles import assign_default_roles, create_role, get_default_roles
from jupyterhub.scopes import get_scopes_for

from spawner_config.access.sessions import delete_tokens, end_sessions
from spawner_config.access.worker_tokens import drivers_token
from tests.unit.spawner_config.access.test_accounts import Hub
from tests.unit.spawner_config.access.test_sessions import start

SECRET = b"the hub's cookie secret"


@pytest.fixture
def grace(database):
    """A user with the roles that the hub assigns to every user."""
    user = Hub(database).user("grace")
    for role in get_default_roles():
        create_role(database, role)
    assign_default_roles(database, entity=user.orm_user)
    return user


def run_worker(database, user, secret="salted"):
    spawner = start(user, "c-w0")
    client = orm.OAuthClient(identifier=f"jupyterhub-user-{user.name}-c-w0", secret=secret)
    database.add(client)
    spawner.orm_spawner.oauth_client = client
    database.commit()
    return spawner


def test_the_token_reaches_one_worker_and_nothing_else(database, grace):
    token = orm.APIToken.find(database, drivers_token(SECRET, grace, run_worker(database, grace)))
    assert token.user is grace.orm_user
    reached = {scope for scope in get_scopes_for(token) if not scope.startswith("read:users:name")}
    assert {scope for scope in reached if "server" in scope} == {"access:servers!server=grace/c-w0"}
    assert not [scope for scope in reached if scope.startswith(("servers", "tokens", "admin"))]


def test_all_drivers_share_one_token_and_each_start_has_another(database, grace):
    spawner = run_worker(database, grace)
    first = drivers_token(SECRET, grace, spawner)
    assert drivers_token(SECRET, grace, spawner) == first
    spawner.orm_spawner.oauth_client.secret = "of the next start"
    second = drivers_token(SECRET, grace, spawner)
    assert second != first
    assert len([token for token in grace.api_tokens if token.note == "Drivers of c-w0"]) == 2
    delete_tokens(database, spawner)
    assert not orm.APIToken.find(database, first)
    assert not orm.APIToken.find(database, second)


def test_a_run_continues_when_its_user_changes_the_password(database, grace):
    spawner = run_worker(database, grace)
    token = drivers_token(SECRET, grace, spawner)
    end_sessions(database, grace, keep=[spawner])
    assert orm.APIToken.find(database, token)
    end_sessions(database, grace)
    assert not orm.APIToken.find(database, token)
