"""Ends the sessions of users, and marks the hub's tokens for servers so that they differ from tokens of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub import orm

if TYPE_CHECKING:
    from collections.abc import Collection

MARK = "farandole-server-"
"""The prefix of the session id in the token of a server; the spawner's id follows it.

JupyterHub leaves the session id empty in tokens of the hub's own OAuth client, that is, in tokens that users request
and in tokens of servers. The hub can therefore mark its tokens with this prefix, and users cannot forge it. In tokens
of other clients, the session id comes from a cookie and can have any value.
"""
HUB_CLIENT = "jupyterhub"


def mark_of(spawner: Any) -> str:
    """Return the session id that identifies the tokens of a server."""
    return f"{MARK}{spawner.orm_spawner.id}"


def mark_token(spawner: Any) -> None:
    """Mark the new token of a server that is starting, and delete the tokens of its earlier starts."""
    db = spawner.user.db
    delete_tokens(db, spawner)
    if token := orm.APIToken.find(db, spawner.api_token):
        token.session_id = mark_of(spawner)
    db.commit()


def delete_tokens(db: Any, spawner: Any) -> None:
    """Delete the tokens of a server, including tokens that the hub no longer knows because it has restarted."""
    for token in _tokens_of_servers(db, spawner.user).filter_by(session_id=mark_of(spawner)):
        db.delete(token)
    db.commit()


def is_of_server(token: orm.APIToken | None, user: Any) -> bool:
    """Return whether the hub created the token for a server of the user.

    The note of a token does not show this, because users choose the notes of their tokens.
    """
    return (
        token is not None
        and token.user_id == user.id
        and token.client_id == HUB_CLIENT
        and (token.session_id or "").startswith(MARK)
    )


def end_sessions(db: Any, user: Any, *, keep: Collection[Any] = ()) -> None:
    """Revoke the logins and tokens of a user, except for the tokens of the servers in ``keep``."""
    kept = {mark_of(spawner) for spawner in keep}
    for token in db.query(orm.APIToken).filter_by(user_id=user.id):
        if not (is_of_server(token, user) and token.session_id in kept):
            db.delete(token)
    for code in db.query(orm.OAuthCode).filter_by(user_id=user.id):
        db.delete(code)
    # All of the user's cookies contain this id, so a new id invalidates the cookies.
    user.cookie_id = orm.new_token()
    db.commit()


def _tokens_of_servers(db: Any, user: Any) -> Any:
    return db.query(orm.APIToken).filter_by(user_id=user.id, client_id=HUB_CLIENT)
