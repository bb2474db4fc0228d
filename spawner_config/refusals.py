"""Errors that end the start of a server with a message for its user."""

from __future__ import annotations

from jupyterhub.spawner import SpawnException


def refused_start(message: str, *, reason: str, status_code: int = 409) -> SpawnException:
    """Return the exception that ends a start with ``message``; ``reason`` is one word for the hub's metrics."""
    refusal = SpawnException(message, reason=reason, status_code=status_code)
    # The spawn page and the progress show this attribute; the exception's own text begins with its class.
    refusal.jupyterhub_message = message
    return refusal
