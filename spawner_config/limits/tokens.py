"""The largest number of tokens of a user, of all kinds: requested ones, those of servers and those of browsers."""

from __future__ import annotations

from typing import Any

from jupyterhub import orm
from sqlalchemy import delete, event, func, select
from sqlalchemy.orm import object_session
from tornado.web import HTTPError

TOKENS_PER_USER = 200
"""More than a user's servers, browsers and programs need; the hub still lists them in less than 0.1 s."""


def limit_tokens() -> None:
    """Refuse further tokens of a user who has `TOKENS_PER_USER` of them.

    JupyterHub has no setting for it. It makes tokens in three places, for API requests, servers and logins at servers,
    and sets their user in the same way.
    """
    if not event.contains(orm.APIToken.user, "set", _check_number):
        event.listen(orm.APIToken.user, "set", _check_number)


def _check_number(token: orm.APIToken, user: orm.User | None, _before: Any, _event: Any) -> None:
    session = object_session(user)
    if user is None or session is None:
        return
    # The new token is in the session, but not complete yet.
    with session.no_autoflush:
        if _count(session, user) < TOKENS_PER_USER:
            return
        # The hub itself does this once an hour.
        session.execute(delete(orm.APIToken).where(orm.APIToken.user == user, orm.APIToken.expires_at < orm.utcnow()))
        if _count(session, user) < TOKENS_PER_USER:
            return
    session.expunge(token)
    # SQLAlchemy has added the token to the user's list before it called this function.
    session.expire(user, ["api_tokens"])
    raise HTTPError(
        400,
        f"{user.name} has {TOKENS_PER_USER} tokens, the most that this hub allows for each user. Delete some at "
        "/hub/token, then try again.",
    )


def _count(session: Any, user: orm.User) -> int:
    found: int = session.scalar(select(func.count(orm.APIToken.id)).where(orm.APIToken.user == user))
    return found
