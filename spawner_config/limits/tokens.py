"""Limits the number and size of a user's tokens: requested tokens, and the tokens of servers and browsers."""

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
"""The tokens that a user may request, for programs and scripts."""
TOKENS_PER_SERVER = 4
"""A server has one token and a worker has another for its drivers. Each browser that opens a server adds one more."""
LONGEST = 4096
"""The length of a token's note and scopes together; SQLite does not enforce the lengths of columns."""

_STARTING: ContextVar[int | None] = ContextVar("farandole_starting", default=None)
"""The id of the user whose server the current task is starting."""


def scopes_of_server(spawner: Any) -> list[str]:
    """Return the scopes of a server's token (for ``c.Spawner.server_token_scopes``), and admit the token.

    JupyterHub calls this in the task that starts the server, and then creates the token in the same task. Only the task
    distinguishes this token from one that the user requests, because users can choose notes and scopes.
    """
    _STARTING.set(spawner.user.id)
    return server_token_scopes(spawner)


class TokenLimit:
    """Limits the number of a user's tokens, and their length.

    - A user may request `requested` tokens. Further tokens are refused, and so are tokens longer than `LONGEST`.
    - If a user has `most` tokens of all kinds, a new token replaces that of the oldest browser login at a server. Any
      page can make a browser log in repeatedly, so these logins must not keep out servers or other logins.
    - Servers always get their tokens. The limits on servers also limit these tokens.

    JupyterHub has no setting for this. It creates tokens in three places, for API requests, servers and logins at
    servers, and sets their user in the same way.
    """

    def __init__(self, limits: Limits) -> None:
        """Derive the numbers from the limits of the profiles."""
        self.requested = SPARE_TOKENS
        self.most = SPARE_TOKENS + TOKENS_PER_SERVER * (limits.workers_per_user + limits.notebooks_per_user)

    def enforce(self) -> None:
        """Check each new token from now on."""
        event.listen(orm.APIToken.user, "set", self.check)

    def check(self, token: orm.APIToken, user: orm.User | None, _before: Any, _event: Any) -> None:
        """Raise HTTPError 400 for a token that is too long, or that a user requests beyond the limit."""
        session = None if user is None else object_session(user)
        if user is None or session is None:
            return
        # The new token is in the session, but not complete yet.
        with session.no_autoflush:
            reason = _too_long(token) or self._too_many(session, token, user)
            if not reason:
                self._make_room(session, user)
        if reason:
            session.expunge(token)
            # SQLAlchemy has added the token to the user's list before it called this function.
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
"""Requested tokens have no session id; `spawner_config.access.sessions` gives one to the tokens of servers."""


def _too_long(token: orm.APIToken) -> str | None:
    length = len(token.note) + len(json.dumps(token.scopes))
    if length <= LONGEST:
        return None
    return f"The note and the scopes of a token may have {LONGEST} characters, and these have {length}. Shorten them."


def _count(session: Any, user: orm.User, *conditions: Any) -> int:
    found: int = session.scalar(select(func.count(orm.APIToken.id)).where(orm.APIToken.user == user, *conditions))
    return found


def _delete_expired(session: Any, user: orm.User) -> None:
    # The hub itself deletes expired tokens only once an hour.
    session.execute(delete(orm.APIToken).where(orm.APIToken.user == user, orm.APIToken.expires_at < orm.utcnow()))
