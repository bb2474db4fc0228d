"""Limits the number and size of a user's OAuth codes, one of which the hub stores whenever a browser opens a server."""

from __future__ import annotations

import re
from typing import Any

from jupyterhub import orm
from jupyterhub.handlers.base import SESSION_COOKIE_NAME, BaseHandler
from sqlalchemy import delete, event, or_, select
from sqlalchemy.orm import object_session
from tornado.web import HTTPError

MOST_CODES = 50
"""The number of codes that a user may have. A server exchanges its code within seconds, but a slow server may still
have to do so for every tab of a browser that reopens its last session."""
LONGEST_CHALLENGE = 128
"""The limit on the length of a code's challenge, according to RFC 7636."""
SESSION_ID = re.compile(r"[0-9a-f]{32}")
"""The format of the session ids that JupyterHub creates."""


def limit_codes() -> None:
    """Limit the codes that are created from now on.

    - A session id that the hub has not made is ignored. The hub would store it with a code, and SQLite does not
      enforce the lengths of columns.
    - A code whose challenge is too long is refused, for the same reason.
    - A new code replaces the expired codes of its user, and the oldest ones if there are `MOST_CODES`.

    JupyterHub has no setting for this.
    """
    BaseHandler.get_session_cookie = session_id
    event.listen(orm.OAuthCode.code_challenge, "set", check_challenge)
    event.listen(orm.OAuthCode.user, "set", make_room)


def session_id(handler: Any) -> str | None:
    """Return a browser's session id (``BaseHandler.get_session_cookie``), or None if the hub has not made it."""
    found: str = getattr(handler, "_session_id", None) or handler.get_cookie(SESSION_COOKIE_NAME, "")
    return found if SESSION_ID.fullmatch(found) else None


def check_challenge(_code: orm.OAuthCode, challenge: str | None, _before: Any, _event: Any) -> None:
    """Raise HTTPError 400 if a code's challenge is too long."""
    if challenge and len(challenge) > LONGEST_CHALLENGE:
        raise HTTPError(
            400,
            f"A code challenge may have {LONGEST_CHALLENGE} characters, and this one has {len(challenge)}. Shorten it.",
        )


def make_room(_code: orm.OAuthCode, user: orm.User | None, _before: Any, _event: Any) -> None:
    """Delete the codes that a new code of the user replaces."""
    session = None if user is None else object_session(user)
    if user is None or session is None:
        return
    # The new code is already in the session, but it is incomplete and must not be written to the database yet.
    with session.no_autoflush:
        of_user = orm.OAuthCode.user == user
        newest = select(orm.OAuthCode.id).where(of_user).order_by(orm.OAuthCode.id.desc()).limit(MOST_CODES - 1)
        old = or_(
            orm.OAuthCode.expires_at < orm.OAuthCode.now(), orm.OAuthCode.id.not_in(session.scalars(newest).all())
        )
        session.execute(delete(orm.OAuthCode).where(of_user, old))
