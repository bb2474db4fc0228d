"""Counts the recent sign-ups from each address."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tornado.httputil import HTTPServerRequest

HOUR = 3600
IPV6_PREFIX = 64
"""The length of the IPv6 prefix that counts as one address. Internet providers give each customer at least a /64
network, so a single customer has many addresses."""


class SignUps:
    """The accounts that users have created since the hub started.

    The hub keeps them in memory, because the database stores neither the creation time nor the address of an account.
    """

    def __init__(self) -> None:
        self._recent: deque[tuple[float, str]] = deque()
        self._senders: dict[str, str] = {}

    def add(self, name: str, address: str) -> None:
        """Record a new account and the address from which it was created."""
        sender = sender_of(address)
        self._recent.append((time.monotonic(), sender))
        self._senders[name] = sender

    def count(self, address: str | None = None) -> int:
        """Return how many accounts were created within the last hour, from ``address`` or (by default) in total."""
        while self._recent and time.monotonic() - self._recent[0][0] > HOUR:
            self._recent.popleft()
        return len(self._recent) if address is None else [who for _, who in self._recent].count(sender_of(address))

    def pending(self, address: str, names: Collection[str]) -> int:
        """Return how many of the accounts in ``names`` were created from ``address``, and forget all other accounts."""
        self._senders = {name: sender for name, sender in self._senders.items() if name in names}
        return list(self._senders.values()).count(sender_of(address))


async def client_address(request: HTTPServerRequest, tls_servers: Iterable[str]) -> str:
    """Return the address of the client that sent a request to the hub's proxy or to one of the ``tls_servers``.

    Each proxy appends the address of its own client to X-Forwarded-For. Therefore:

    - the last address comes from the hub's proxy;
    - if the last address is that of a TLS server, the address before it comes from that server;
    - the client may have invented all other addresses.
    """
    *_, before, last = ["", *(part.strip() for part in request.headers.get("X-Forwarded-For", "").split(","))]
    # Resolve the names for each request, because a container that was started again may have another address.
    return before if before and last in await _addresses(tls_servers) else str(request.remote_ip)


async def _addresses(hosts: Iterable[str]) -> set[str]:
    found = set()
    for host in hosts:
        # A host that has no address at the moment has sent no request.
        with suppress(OSError):
            found |= {str(info[4][0]) for info in await asyncio.get_running_loop().getaddrinfo(host, None)}
    return found


def sender_of(address: str) -> str:
    """Return the /64 network of an IPv6 address, the IPv4 address in an IPv4-mapped one, or other text unchanged."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address) or parsed.ipv4_mapped:
        return str(getattr(parsed, "ipv4_mapped", None) or parsed)
    return str(IPv6Address(int(parsed) >> (128 - IPV6_PREFIX) << (128 - IPV6_PREFIX)))
