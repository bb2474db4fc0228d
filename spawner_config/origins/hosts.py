"""The hub's public address, and the hosts below it on which users' servers run.

This module imports only the standard library, because `make doctor` uses it on machines without any packages.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_DOMAIN = "hub.localhost"
"""Browsers resolve this name and all names below it to their own machine (RFC 6761, section 6.3)."""
DANGER = (
    "FARANDOLE_ORIGINS=one: all users share one origin. A page of any user can act as the user who opens it, for "
    "example as an administrator."
)
DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""Matches names with at least two labels that do not end in a number, because browsers accept cookies only for such
names."""
DOMAIN_WANTED = "a host name in lower case with a point inside, such as hub.example.org, and no IP address"
LABEL_LENGTH = 63
DOMAIN_LENGTH = 253 - LABEL_LENGTH - 1
PLAIN = re.compile(r"[a-z0-9](?:-?[a-z0-9])*")
"""Matches names without adjacent hyphens, which occur only in hashed labels and internationalized names (xn--)."""
HASHED = re.compile(r"u-[a-z0-9-]+--[a-z2-7]{32}")
HASH_BYTES = 20
STUB_LENGTH = LABEL_LENGTH - len("u-") - len("--") - HASH_BYTES * 8 // 5
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class PublicAddress:
    """The address at which browsers reach the hub. The servers of each user have a host below ``domain``."""

    scheme: str
    domain: str
    port: int

    @property
    def url(self) -> str:
        """The URL without a trailing slash, and without the port if it is the scheme's default port."""
        port = "" if DEFAULT_PORTS[self.scheme] == self.port else f":{self.port}"
        return f"{self.scheme}://{self.domain}{port}"


def is_domain(text: str) -> bool:
    """Return whether ``text`` is a valid domain name for a hub and leaves room for users' hosts below it."""
    return len(text) <= DOMAIN_LENGTH and DOMAIN.fullmatch(text) is not None


def is_local(domain: str) -> bool:
    """Return whether browsers resolve a name to their own machine without DNS."""
    return domain == "localhost" or domain.endswith(".localhost")


# The cache holds all users of a large hub, because each login and start compares the label with all others. A cache
# that is too small for such a scan would never hit.
@lru_cache(maxsize=1 << 16)
def host_label(name: str) -> str:
    """Return the first label of a user's host: a safe name as it is, else part of the name and 160 bits of a hash.

    JupyterHub's default hook uses only 28 bits of a hash, so a user could choose a name that gets another user's host.
    """
    if len(name) <= LABEL_LENGTH and PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(f"user:{name}".encode()).digest()[:HASH_BYTES]
    stub = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:STUB_LENGTH].rstrip("-") or "x"
    return f"u-{stub}--{base64.b32encode(digest).decode().lower()}"


def is_host_label(text: str) -> bool:
    """Return whether `host_label` can return this text."""
    return len(text) <= LABEL_LENGTH and (PLAIN.fullmatch(text) or HASHED.fullmatch(text)) is not None


def subdomain_hook(name: str, domain: str, kind: str) -> str:
    """Return the host of a user, or the hub's own for its services (``c.JupyterHub.subdomain_hook``)."""
    return domain if kind == "service" else f"{host_label(name)}.{domain}"


def same_host(name: str, others: Iterable[str]) -> str | None:
    """Return another name that gets the same host as ``name``, or None; the case of host names does not matter."""
    label = host_label(name).lower()
    return next((other for other in others if other != name and host_label(other).lower() == label), None)
