"""Limits the number and size of a user's tokens, which users request and which servers and browsers get."""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from sqlalchemy import delete, event, func, select
from sqlalchemy.orm import object_session
from tornado.web import HTTPError

from spawner_config.access.sessions import HUB_CLIENT
from spawner_config.roles import server_token_scopes

if TYPE_CHECKING:
    from spawner_config.profiles.limits import Limits

SPARE_TOKENS = 100
"""The number of tokens that a user may request, for example for scripts."""
TOKENS_PER_SERVER = 4
"""Enough for the server's own token, the token with which drivers reach a worker, and two browsers that open the
server."""
LONGEST = 4096
"""The limit on the length of a token's note, scopes and session id together. SQLite does not enforce the lengths of
columns."""

_STARTING: ContextVar[int | None] = ContextVar("farandole_starting", default=None)
"""The id of the user for whom the current asyncio task is starting a server."""


def scopes_of_server(spawner: Any) -> list[str]:
    """Return the scopes of a server's token (``c.Spawner.server_token_scopes``), and exempt the token from the limit.

    JupyterHub calls this in the task that starts the server, and then creates the token in the same task. Nothing else
    distinguishes this token from one that the user requests, because users can choose notes and scopes.
    """
    _STARTING.set(spawner.user.id)
    return server_token_scopes(spawner)


class TokenLimit:
    """Limits the number and the length of a user's tokens.

    - The note, scopes and session id of a token may have `LONGEST` characters together.
    - A user may request `requested` tokens.
    - If a user already has `most` tokens of all kinds, a new token replaces the one from the oldest browser login at a
      server. Any web page can make a browser log in repeatedly, so these logins must not block servers or other logins.
    - Servers always get their tokens, whose number is limited by the limits on servers.

    JupyterHub has no setting for this. It creates tokens in three places (API requests, starts of servers, and logins
    at servers), but in all of them it sets the token's ``user`` attribute, on which `enforce` listens.
    """

    def __init__(self, limits: Limits) -> None:
        """Compute the limit on a user's tokens from the limits on servers; the limit on requested tokens is fixed."""
        self.requested = SPARE_TOKENS
        self.most = SPARE_TOKENS + TOKENS_PER_SERVER * limits.servers_per_user

    def enforce(self) -> None:
        """Check every token that is created from now on."""
        event.listen(orm.APIToken.user, "set", self.check)

    def check(self, token: orm.APIToken, user: orm.User | None, _before: Any, _event: Any) -> None:
        """Raise HTTPError 400 if the texts of a token are too long, or if the user has requested too many tokens."""
        session = None if user is None else object_session(user)
        if user is None or session is None:
            return
        # The new token is already in the session, but it is incomplete and must not be written to the database yet.
        with session.no_autoflush:
            reason = _too_long(token) or self._too_many(session, token, user)
            if not reason:
                self._make_room(session, user)
        if reason:
            session.expunge(token)
            # SQLAlchemy has already added the token to the user's list of tokens.
            session.expire(user, ["api_tokens"])
            raise HTTPError(400, reason)

    def _too_many(self, session: Any, token: orm.APIToken, user: orm.User) -> str | None:
        is_requested = token.client_id == HUB_CLIENT and token.session_id is None and _STARTING.get() != user.id
        if not is_requested or _count(session, user, *_REQUESTED) < self.requested:
            return None
        _delete_expired(session, user)
        if _count(session, user, *_REQUESTED) < self.requested:
            return None
        return (
            f"{user.name} has requested {self.requested} tokens, the most that this hub allows for each user. Delete "
            "some at /hub/token, then try again."
        )

    def _make_room(self, session: Any, user: orm.User) -> None:
        if _count(session, user) < self.most:
            return
        _delete_expired(session, user)
        surplus = _count(session, user) - self.most + 1
        logins = select(orm.APIToken).where(orm.APIToken.user == user, orm.APIToken.client_id != HUB_CLIENT)
        for login in session.scalars(logins.order_by(orm.APIToken.id).limit(max(0, surplus))):
            session.delete(login)


_REQUESTED = (orm.APIToken.client_id == HUB_CLIENT, orm.APIToken.session_id.is_(None))
"""The conditions for tokens that users requested. They have no session id, unlike tokens of servers, which get one from
`spawner_config.access.sessions`."""


def _too_long(token: orm.APIToken) -> str | None:
    length = len(token.note) + len(token.session_id or "") + len(json.dumps(token.scopes))
    if length <= LONGEST:
        return None
    return (
        f"The note, the scopes and the session id of a token may have {LONGEST} characters, and these have {length}. "
        "Shorten them."
    )


def _count(session: Any, user: orm.User, *conditions: Any) -> int:
    found: int = session.scalar(select(func.count(orm.APIToken.id)).where(orm.APIToken.user == user, *conditions))
    return found


def _delete_expired(session: Any, user: orm.User) -> None:
    # The hub itself deletes expired tokens only once an hour.
    session.execute(delete(orm.APIToken).where(orm.APIToken.user == user, orm.APIToken.expires_at < orm.utcnow()))
