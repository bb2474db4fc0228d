"""The addresses of a hub and its workers: the URL to connect to, and the Host header that the hub's proxy expects."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import ClientSession, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver


@dataclass(frozen=True, kw_only=True)
class Address:
    """A ``url`` with a trailing slash, and the ``host`` for the Host header if it differs from the host in the URL.

    A hub can give each user a separate host name, which on some networks only browsers can resolve. Servers of the hub
    connect to its proxy under another name, and the proxy routes their requests by the ``Host`` header.
    """

    url: str
    host: str = ""

    @classmethod
    def of(cls, url: str, public: str = "") -> Address:
        """Return the address of a hub; ``public`` is the hub's address for browsers if that differs from ``url``."""
        return cls(url=f"{url.rstrip('/')}/", host=urlsplit(public).netloc)

    @property
    def headers(self) -> dict[str, str]:
        """The headers to add to each request."""
        return {"Host": self.host} if self.host else {}

    def server(self, url: str) -> Address:
        """Return the address of a server on this hub, given the URL or path by which the hub refers to that server."""
        parts = urlsplit(url)
        if parts.netloc and not self.host:
            return Address.of(url)
        return Address(url=f"{self.url.rstrip('/')}{parts.path.rstrip('/')}/", host=parts.netloc or self.host)


def open_session() -> ClientSession:
    """Return a new HTTP session for a hub and its workers, which the caller closes.

    The number of its connections is not limited, because each rank needs one, or two after a connection broke, and
    requests must not have to wait for a free connection.
    """
    return ClientSession(connector=_LocalhostConnector())


class _LocalhostConnector(TCPConnector):
    """Connects with a `LocalhostResolver`, and closes it in the end, which aiohttp leaves to the caller."""

    def __init__(self) -> None:
        self._localhost = LocalhostResolver()
        super().__init__(limit=0, resolver=self._localhost)

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close all connections."""
        await super().close(abort_ssl=abort_ssl)
        await self._localhost.close()


class LocalhostResolver(AbstractResolver):
    """Resolves names below ``localhost`` to this machine, as browsers do (RFC 6761, section 6.3). Python does not."""

    def __init__(self) -> None:
        self._resolver = DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host."""
        local = host.rstrip(".").endswith(".localhost")
        return await self._resolver.resolve("127.0.0.1" if local else host, port, family)

    async def close(self) -> None:
        """Close the underlying resolver."""
        await self._resolver.close()
