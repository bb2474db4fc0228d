"""Names of containers and services: unique for each server, and short enough for an engine's name server."""

from __future__ import annotations

from jupyterhub.slugs import safe_slug

LABEL_LENGTH = 63
"""The limit for a part of a domain name (RFC 1035). The engine does not answer reverse lookups for longer names.
Each lookup would then time out after 10 s, and torch makes one for each connection."""


def container_name(prefix: str, user: str, server: str) -> str:
    """Return the unique name of a server's container, with at most `LABEL_LENGTH` characters.

    The names of ``user`` and ``server`` are cut if they are too long together; both then end in a hash.
    """
    parts = [text for text in (user, server) if text]
    name = f"{prefix}-{'--'.join(slug(text) for text in parts)}"
    if len(name) > LABEL_LENGTH:
        room = (LABEL_LENGTH - len(f"{prefix}---")) // 2
        name = f"{prefix}-{'--'.join(safe_slug(text, max_length=room) for text in parts)}"
    return name


def slug(text: str) -> str:
    """Return a unique name that engines accept; two of them joined by ``--`` are unique too."""
    return str(safe_slug(text)) if text else ""
