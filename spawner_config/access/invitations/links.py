"""The one-time links in the hub's database. A link contains a secret, of which the database has only the hash."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

from jupyterhub.orm import Base
from sqlalchemy import BigInteger, Column, String

SECRET_BYTES = 32
DAY = 86400


class Invitation(Base):  # type: ignore[misc]
    """A link with which the user of an account can set a password until a time, in seconds since 1970."""

    __tablename__ = "farandole_invitations"

    username = Column(String(128), primary_key=True)
    secret_hash = Column(String(64), nullable=False, index=True)
    expires = Column(BigInteger, nullable=False)


def create_table(db: Any) -> None:
    """Create the table in the hub's database if it does not exist."""
    Invitation.__table__.create(db.bind, checkfirst=True)


def make_secret(db: Any, name: str, days: int) -> str:
    """Return the secret of a new link for an account. An earlier link of the account becomes invalid."""
    db.query(Invitation).filter(Invitation.expires <= time.time()).delete()
    secret = secrets.token_urlsafe(SECRET_BYTES)
    db.merge(Invitation(username=name, secret_hash=_hash(secret), expires=int(time.time()) + days * DAY))
    db.commit()
    return secret


def name_of(db: Any, secret: str) -> str | None:
    """Return the name of the account to which a valid link belongs, or None if there is no such link."""
    found = db.query(Invitation).filter_by(secret_hash=_hash(secret)).first()
    return str(found.username) if found and found.expires > time.time() else None


def end_link(db: Any, name: str) -> None:
    """Make the link of an account invalid, if it has one."""
    db.query(Invitation).filter_by(username=name).delete()
    db.commit()


def valid_until(db: Any) -> dict[str, str]:
    """Return the times at which valid links expire, as text, by the names of their accounts."""
    valid = db.query(Invitation).filter(Invitation.expires > time.time())
    return {one.username: as_text(one.expires) for one in valid}


def as_text(seconds: float) -> str:
    """Return a time as text, such as 2026-12-02 08:00 UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _hash(secret: str) -> str:
    # The secret has 256 random bits, so that a hash without salt and without delay cannot be reversed.
    return hashlib.sha256(secret.encode()).hexdigest()
