"""Errors that end the start of a server with a message for the user."""

from __future__ import annotations

from jupyterhub.spawner import SpawnException


class ForeignObjectError(RuntimeError):
    """Raised when an object that a user needs, such as a network or volume, belongs to another user.

    The message contains a remedy.
    """


def check_owner(kind: str, name: str, owner: str | None, user: str) -> None:
    """Raise `ForeignObjectError` if an object belongs to another user.

    The names of these objects contain the slug of the user's name, which can be the same for two users. Objects from
    earlier versions have no owner and are accepted.
    """
    if owner not in {None, user}:
        raise ForeignObjectError(
            f"The {kind} {name} belongs to the user {owner!r}, and not to {user!r}: both names have the same short "
            f"form. The user {user!r} needs another name, or the administrator can remove the {kind} if {owner!r} has "
            "left."
        )


def refused_start(message: str, *, reason: str, status_code: int = 409) -> SpawnException:
    """Return the exception that ends a start with ``message``; ``reason`` is a single word for the hub's metrics."""
    refusal = SpawnException(message, reason=reason, status_code=status_code)
    # The spawn page and the progress events show this attribute. The text of the exception itself starts with its
    # class.
    refusal.jupyterhub_message = message
    return refusal
