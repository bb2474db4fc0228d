"""Errors that end the start of a server with a message for its user."""

from __future__ import annotations

from jupyterhub.spawner import SpawnException


class ForeignObjectError(RuntimeError):
    """Raised when a user's network, volume or claim belongs to another user; the message has the remedy."""


def check_owner(kind: str, name: str, owner: str | None, user: str) -> None:
    """Raise `ForeignObjectError` if an object belongs to another user; an object of an earlier version has no owner.

    The names of these objects contain a short form of the user's name, which two names may have in common.
    """
    if owner not in {None, user}:
        raise ForeignObjectError(
            f"The {kind} {name} belongs to the user {owner!r}, and not to {user!r}: the two names have the same short "
            f"form. The administrator must give one of them another name, or remove the {kind} if {owner!r} has left."
        )


def refused_start(message: str, *, reason: str, status_code: int = 409) -> SpawnException:
    """Return the exception that ends a start with ``message``; ``reason`` is one word for the hub's metrics."""
    refusal = SpawnException(message, reason=reason, status_code=status_code)
    # The spawn page and the progress show this attribute; the exception's own text begins with its class.
    refusal.jupyterhub_message = message
    return refusal
