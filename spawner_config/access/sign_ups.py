"""Counts the recent sign-ups of each address."""

from __future__ import annotations

import time
from collections import deque
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

HOUR = 3600
IPV6_PREFIX = 64
"""Internet providers give each customer a network of at least this size, so one customer has many addresses."""


class SignUps:
    """The accounts created since the hub started. The database stores neither the age nor the address of an account."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, str]] = deque()
        self._senders: dict[str, str] = {}

    def add(self, name: str, address: str) -> None:
        """Count a new account."""
        sender = sender_of(address)
        self._recent.append((time.monotonic(), sender))
        self._senders[name] = sender

    def count(self, address: str | None = None) -> int:
        """Return how many accounts were created within the last hour, from one address or from all."""
        while self._recent and time.monotonic() - self._recent[0][0] > HOUR:
            self._recent.popleft()
        return len(self._recent) if address is None else [who for _, who in self._recent].count(sender_of(address))

    def pending(self, address: str, names: Collection[str]) -> int:
        """Return how many accounts from an address are in ``names``, and forget the accounts that are not."""
        self._senders = {name: sender for name, sender in self._senders.items() if name in names}
        return list(self._senders.values()).count(sender_of(address))


def sender_of(address: str) -> str:
    """Return the network of an IPv6 address, and any other address as it is."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address) or parsed.ipv4_mapped:
        return str(getattr(parsed, "ipv4_mapped", None) or parsed)
    return str(IPv6Address(int(parsed) >> (128 - IPV6_PREFIX) << (128 - IPV6_PREFIX)))
