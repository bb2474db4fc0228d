"""Refuses users with the same slug, because names of homes, networks and network policies contain the user's slug.

Unless a name is short and simple, its slug ends in a hash of only 32 bits. An attacker can find another name with the
same 32 bits within a minute.
"""

from __future__ import annotations

import hashlib
from typing import Any

from jupyterhub import orm
from jupyterhub.slugs import is_valid_simple_name
from nativeauthenticator.orm import UserInfo
from tornado.log import app_log
from tornado.web import HTTPError

SHORTEST_SLUG = 10
"""A simple name with up to this number of characters is its own slug, even where slugs have to be short."""
HASH_LENGTH = 8
"""The number of hexadecimal digits of the hash in a slug, equal to ``_hash_length`` in `jupyterhub.slugs`."""


def check_slug(db: Any, name: str) -> None:
    """Raise HTTPError 403 if another user or account has the same slug as ``name``; the oldest user keeps the slug."""
    holder = slug_holder(db, name)
    if holder in {None, name}:
        return
    app_log.warning(
        "%r cannot be used: its home and network would be those of %r. Delete one of the two users at "
        "/hub/admin, or discard one of the accounts at /hub/authorize.",
        name,
        holder,
    )
    raise HTTPError(
        403,
        f"The name {name!r} cannot be used here: its short form, which is part of the names of homes and networks, "
        "belongs to another user. Choose another name, or ask the administrator: the hub's log shows the other user's "
        "name.",
    )


def slug_holder(db: Any, name: str) -> str | None:
    """Return the oldest user with the same slug as ``name``, or the oldest such account if there is no user.

    The result can be ``name`` itself. It is None if no user or account has this slug.
    """
    if is_valid_simple_name(name, SHORTEST_SLUG):
        return None
    wanted = _hash(name)
    # Compare all names, because the database does not store the hash. This takes a few milliseconds for thousands of
    # users.
    for names in (db.query(orm.User.name).order_by(orm.User.id), db.query(UserInfo.username).order_by(UserInfo.id)):
        for (other,) in names:
            if _hash(other) == wanted:
                return str(other)
    return None


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:HASH_LENGTH]
