"""Marks the tokens that the hub creates for servers, so that no user can forge one, and ends the sessions of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyterhub import orm

if TYPE_CHECKING:
    from collections.abc import Collection

MARK = "farandole-server-"
"""The beginning of the session id of a server's token; the id of the spawner follows.

JupyterHub sets no session id for tokens of the hub's own OAuth client, which are those that users request and those of
servers. Tokens of other clients may have any session id, because it comes from a cookie.
"""
HUB_CLIENT = "jupyterhub"


def mark_of(spawner: Any) -> str:
    """Return the session id that marks the tokens of a spawner's server."""
    return f"{MARK}{spawner.orm_spawner.id}"


def mark_token(spawner: Any) -> None:
    """Mark the new token of a server that is starting, and delete the tokens from its former starts."""
    db = spawner.user.db
    delete_tokens(db, spawner)
    if token := orm.APIToken.find(db, spawner.api_token):
        token.session_id = mark_of(spawner)
    db.commit()


def delete_tokens(db: Any, spawner: Any) -> None:
    """Delete the tokens of a server, including those that the hub forgot in a restart."""
    for token in _tokens_of_servers(db, spawner.user).filter_by(session_id=mark_of(spawner)):
        db.delete(token)
    db.commit()


def is_of_server(token: orm.APIToken | None, user: Any) -> bool:
    """Return whether the hub created a token for one of the user's servers. Users choose the notes, so none counts."""
    return (
        token is not None
        and token.user_id == user.id
        and token.client_id == HUB_CLIENT
        and (token.session_id or "").startswith(MARK)
    )


def end_sessions(db: Any, user: Any, *, keep: Collection[Any] = ()) -> None:
    """Revoke the logins and tokens of a user, except the tokens of the servers whose spawners are in ``keep``."""
    kept = {mark_of(spawner) for spawner in keep}
    for token in db.query(orm.APIToken).filter_by(user_id=user.id):
        if not (is_of_server(token, user) and token.session_id in kept):
            db.delete(token)
    for code in db.query(orm.OAuthCode).filter_by(user_id=user.id):
        db.delete(code)
    # All cookies of the user contain this id, so a new id invalidates them.
    user.cookie_id = orm.new_token()
    db.commit()


def _tokens_of_servers(db: Any, user: Any) -> Any:
    return db.query(orm.APIToken).filter_by(user_id=user.id, client_id=HUB_CLIENT)
