"""Tests for the tokens and logins that end when a password changes, with a real database and the hub's own users."""

from __future__ import annotations

from jupyterhub import orm

from spawner_config.access.sessions import delete_tokens, end_sessions, is_of_server, mark_token
from tests.unit.spawner_config.access.test_accounts import Hub


def start(user, name):
    """Create and mark a server's token, as the hub does when it starts the server, and return the spawner."""
    spawner = user.get_or_create_spawner(name, "")
    spawner.api_token = user.new_api_token(note=f"Server at /user/{user.name}/{name}", scopes=["inherit"])
    mark_token(spawner)
    return spawner


def found(database, token):
    return orm.APIToken.find(database, token)


def test_the_end_of_sessions_leaves_running_servers_their_tokens(database):
    hub = Hub(database)
    grace, linus = hub.user("grace"), hub.user("linus")
    notebook, worker = start(grace, ""), start(grace, "c-w0")
    forged = grace.new_api_token(note="Server at /user/grace/", scopes=["inherit"])
    database.add(orm.OAuthCode(code="secret", user=grace.orm_user))
    database.commit()
    cookie, other = grace.cookie_id, linus.cookie_id
    end_sessions(database, grace, keep=[notebook])
    assert found(database, notebook.api_token)
    assert not found(database, worker.api_token)
    assert not found(database, forged)
    assert not database.query(orm.OAuthCode).count()
    assert grace.cookie_id != cookie
    assert hub.tokens() == ["linus", "grace"]
    assert linus.cookie_id == other


def test_a_new_start_and_a_stop_end_the_tokens_of_former_starts(database):
    """A restarted hub no longer knows the token of a server's earlier start, so JupyterHub would not revoke it."""
    hub = Hub(database)
    grace = hub.user("grace")
    spawner = start(grace, "")
    first = spawner.api_token
    other = start(grace, "c-w0").api_token
    second = start(grace, "").api_token
    assert not found(database, first)
    assert is_of_server(found(database, second), grace)
    spawner.api_token = ""
    delete_tokens(database, spawner)
    assert not found(database, second)
    assert found(database, other)
