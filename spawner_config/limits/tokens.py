"""The largest number and size of a user's tokens, of all kinds: requested ones, those of servers and of browsers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jupyterhub import orm
from sqlalchemy import delete, event, func, select
from sqlalchemy.orm import object_session
from tornado.web import HTTPError

if TYPE_CHECKING:
    from spawner_config.profiles.limits import Limits

SPARE_TOKENS = 100
"""For a user's browsers, programs and scripts."""
TOKENS_PER_SERVER = 4
"""A server has a token, a worker another one for its drivers, and each browser that opens a server makes one."""
LONGEST = 4096
"""The length of a token's note and scopes together; SQLite does not enforce the lengths of columns."""


class TokenLimit:
    """Refuses further tokens of a user who has `most` of them, and tokens longer than `LONGEST`.

    JupyterHub has no setting for it. It makes tokens in three places, for API requests, servers and logins at servers,
    and sets their user in the same way.
    """

    def __init__(self, limits: Limits) -> None:
        """Derive the number from the limits of the profiles."""
        self.most = SPARE_TOKENS + TOKENS_PER_SERVER * (limits.workers_per_user + limits.notebooks_per_user)

    def enforce(self) -> None:
        """Check each new token from now on."""
        event.listen(orm.APIToken.user, "set", self.check)

    def check(self, token: orm.APIToken, user: orm.User | None, _before: Any, _event: Any) -> None:
        """Raise HTTPError 400 for a token that would be too long or one too many."""
        session = object_session(user)
        if user is None or session is None:
            return
        # The new token is in the session, but not complete yet.
        with session.no_autoflush:
            reason = _too_long(token) or self._too_many(session, user)
        if reason:
            session.expunge(token)
            # SQLAlchemy has added the token to the user's list before it called this function.
            session.expire(user, ["api_tokens"])
            raise HTTPError(400, reason)

    def _too_many(self, session: Any, user: orm.User) -> str | None:
        if _count(session, user) < self.most:
            return None
        # The hub itself does this once an hour.
        session.execute(delete(orm.APIToken).where(orm.APIToken.user == user, orm.APIToken.expires_at < orm.utcnow()))
        if _count(session, user) < self.most:
            return None
        return (
            f"{user.name} has {self.most} tokens, the most that this hub allows for each user. Delete some at "
            "/hub/token, then try again."
        )


def _too_long(token: orm.APIToken) -> str | None:
    length = len(token.note) + len(json.dumps(token.scopes))
    if length <= LONGEST:
        return None
    return f"The note and the scopes of a token may have {LONGEST} characters, and these have {length}. Shorten them."


def _count(session: Any, user: orm.User) -> int:
    found: int = session.scalar(select(func.count(orm.APIToken.id)).where(orm.APIToken.user == user))
    return found
