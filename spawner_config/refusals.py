"""What a user is told of a start that cannot be."""

from __future__ import annotations

from jupyterhub.spawner import SpawnException


def refused_start(message: str, *, reason: str, status_code: int = 409) -> SpawnException:
    """Return what a spawner raises to end a start with ``message``; ``reason`` is one word for the hub's metrics."""
    refusal = SpawnException(message, reason=reason, status_code=status_code)
    # What the spawn page and the progress show; the exception's own text has its class in front.
    refusal.jupyterhub_message = message
    return refusal
