"""Names of containers and services, which must be unique for each server and short enough for DNS."""

from __future__ import annotations

from jupyterhub.slugs import safe_slug

LABEL_LENGTH = 63
"""The maximum length of a label in a domain name (RFC 1035). If a container's name is longer, the engine's DNS server
does not answer reverse lookups of the container's address: each lookup times out after 10 s, and torch makes one for
each connection."""


def container_name(prefix: str, user: str, server: str) -> str:
    """Return the unique name of a server's container, with at most `LABEL_LENGTH` characters.

    If the name would be too long, ``user`` and ``server`` are shortened, and a part that was shortened ends in a hash.
    """
    parts = [text for text in (user, server) if text]
    name = f"{prefix}-{'--'.join(slug(text) for text in parts)}"
    if len(name) > LABEL_LENGTH:
        room = (LABEL_LENGTH - len(f"{prefix}---")) // 2
        name = f"{prefix}-{'--'.join(safe_slug(text, max_length=room) for text in parts)}"
    return name


def slug(text: str) -> str:
    """Return a unique name that engines accept. Two such names remain unique if they are joined by ``--``."""
    return str(safe_slug(text)) if text else ""
