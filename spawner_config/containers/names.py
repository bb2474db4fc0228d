"""Names of containers and services, another one for each server, short enough for an engine's name server."""

from __future__ import annotations

from jupyterhub.slugs import safe_slug

LABEL_LENGTH = 63
"""Of a part of a domain name (RFC 1035). Where a name is longer the engine does not answer whose an address is, and who
asks waits for 10 s: torch asks at each connection."""


def container_name(prefix: str, user: str, server: str) -> str:
    """Return the name of a server's container, another one for each; at most `LABEL_LENGTH` characters.

    The names of ``user`` and ``server`` are cut where they are too long together; both end in a hash then.
    """
    parts = [text for text in (user, server) if text]
    name = f"{prefix}-{'--'.join(slug(text) for text in parts)}"
    if len(name) > LABEL_LENGTH:
        room = (LABEL_LENGTH - len(f"{prefix}---")) // 2
        name = f"{prefix}-{'--'.join(safe_slug(text, max_length=room) for text in parts)}"
    return name


def slug(text: str) -> str:
    """Return a name as engines accept it, another one for each text; two of them with ``--`` between are unique too."""
    return str(safe_slug(text)) if text else ""
