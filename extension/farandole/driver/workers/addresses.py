"""Addresses of hub and workers: the one that a program connects to, and the host that the hub's proxy expects."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver


@dataclass(frozen=True, kw_only=True)
class Address:
    """A ``url`` with a slash at its end, and the ``host`` of its requests if it is not that of the URL.

    A hub gives each user a host, which only browsers can resolve on some networks. Servers of the hub connect to its
    proxy by another name; the proxy finds the way by the header ``Host``.
    """

    url: str
    host: str = ""

    @classmethod
    def of(cls, url: str, public: str = "") -> Address:
        """Return the address of a hub; ``public`` is its address for browsers if ``url`` is another one."""
        return cls(url=f"{url.rstrip('/')}/", host=urlsplit(public).netloc)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {"Host": self.host} if self.host else {}

    def server(self, url: str) -> Address:
        """Return the address of a server of this hub, by the URL or the path that the hub gives for it."""
        parts = urlsplit(url)
        if parts.netloc and not self.host:
            return Address.of(url)
        return Address(url=f"{self.url.rstrip('/')}{parts.path.rstrip('/')}/", host=parts.netloc or self.host)


class LocalhostResolver(AbstractResolver):
    """Resolves names below ``localhost`` to this machine, as browsers do (RFC 6761, section 6.3); Python does not."""

    def __init__(self) -> None:
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host."""
        local = host.rstrip(".").endswith(".localhost")
        return await self._resolver.resolve("localhost" if local else host, port, family)

    async def close(self) -> None:
        """Release the resolver."""
        await self._resolver.close()
