"""The hub's public address, and the host below it on which the servers of each user are.

Standard library only: `make doctor` imports this module on machines without packages.
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
"""Browsers resolve this name, and all names below it, to their own machine (RFC 6761, section 6.3)."""
DANGER = (
    "FARANDOLE_ORIGINS=one: all users share one origin. A page of any user can act as the user who opens it, for "
    "example as an administrator."
)
DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""A name of two labels or more that does not end in a number, so that browsers accept cookies for it."""
DOMAIN_WANTED = "a host name in lower case with a point inside, such as hub.example.org, and no IP address"
LABEL_LENGTH = 63
DOMAIN_LENGTH = 253 - LABEL_LENGTH - 1
PLAIN = re.compile(r"[a-z0-9](?:-?[a-z0-9])*")
"""Names without two adjacent hyphens, which mark hashed labels and internationalized names (xn--)."""
HASHED = re.compile(r"u-[a-z0-9-]+--[a-z2-7]{32}")
HASH_BYTES = 20
STUB_LENGTH = LABEL_LENGTH - len("u-") - len("--") - HASH_BYTES * 8 // 5
DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class PublicAddress:
    """The address at which browsers reach the hub; those of users are on hosts below ``domain``."""

    scheme: str
    domain: str
    port: int

    @property
    def url(self) -> str:
        """The address, without a slash at the end and without the port that browsers leave out."""
        port = "" if DEFAULT_PORTS[self.scheme] == self.port else f":{self.port}"
        return f"{self.scheme}://{self.domain}{port}"


def is_domain(text: str) -> bool:
    """Return whether the hub can be at this host, with the hosts of users below it."""
    return len(text) <= DOMAIN_LENGTH and DOMAIN.fullmatch(text) is not None


def is_local(domain: str) -> bool:
    """Return whether browsers resolve a name to their own machine, without a name server."""
    return domain == "localhost" or domain.endswith(".localhost")


@lru_cache(maxsize=4096)
def host_label(name: str, kind: str = "user") -> str:
    """Return the first label of a user's host: the name if it is safe there, else a stub of it and 160 bits of a hash.

    JupyterHub's own hook uses 28 bits of a hash, so a user could choose a name with the host of another user.
    """
    if kind == "user" and len(name) <= LABEL_LENGTH and PLAIN.fullmatch(name):
        return name
    digest = hashlib.sha256(f"{kind}:{name}".encode()).digest()[:HASH_BYTES]
    stub = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:STUB_LENGTH].rstrip("-") or "x"
    return f"u-{stub}--{base64.b32encode(digest).decode().lower()}"


def subdomain_hook(name: str, domain: str, kind: str) -> str:
    """Return the host of a user or a service (for ``c.JupyterHub.subdomain_hook``)."""
    return f"{host_label(name, kind)}.{domain}"


def same_host(name: str, others: Iterable[str]) -> str | None:
    """Return another name that has the host of ``name``, since hosts have no case; None if there is none."""
    label = host_label(name).lower()
    return next((other for other in others if other != name and host_label(other).lower() == label), None)
