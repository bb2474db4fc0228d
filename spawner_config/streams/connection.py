"""The hub's own connection to its NATS server, over which it changes the accounts of users."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from farandole.streams.broker import Broker
from nats.errors import Error

from spawner_config.streams.certificates import authority_certificate
from spawner_config.streams.claims import account_claims, credentials, deletion_claims

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nats.aio.client import Client

    from spawner_config.streams.claims import Account
    from spawner_config.streams.keys import Keys

ANSWER_SECONDS = 2.0
CONNECT_OPTIONS: dict[str, Any] = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
"""With these, a connection fails at once if nothing listens at the address."""


class StreamServerError(RuntimeError):
    """Raised when the NATS server does not answer, or refuses a change of accounts. The message says why."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """The hub's NATS server as the hub reaches it: its address, and the keys of its accounts."""

    url: str
    keys: Keys

    @property
    def authority(self) -> str:
        """The certificate that verifies the server's, or an empty string if connections are not encrypted."""
        return authority_certificate(self.keys.authority) if self.url.startswith("tls:") else ""

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Connect as the system account. Raises `StreamServerError`."""
        broker = Broker(self.url, credentials(self.keys.system, self.keys.user(""), "hub"), self.authority)
        client = broker.client()
        try:
            await self._connect(client, broker)
            yield Connection(client, self.keys)
        finally:
            await client.close()

    async def _connect(self, client: Client, broker: Broker) -> None:
        problems: list[Exception] = []

        async def note(problem: Exception) -> None:
            problems.append(problem)

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await client.connect(error_cb=note, **CONNECT_OPTIONS, **broker.options())
        except (Error, OSError, TimeoutError) as exc:
            reason = problems[-1] if problems else exc
            raise StreamServerError(f"The NATS server {self.url} gives the hub no connection: {reason!r}.") from exc


class Connection:
    """An open connection, with the requests that the hub needs. All raise `StreamServerError`."""

    def __init__(self, client: Client, keys: Keys) -> None:
        """Use an open connection of the system account."""
        self._client = client
        self._keys = keys

    async def accounts(self) -> list[str]:
        """Return the public keys of all user accounts."""
        found = await self._ask("LIST", "")
        return [key for key in found if key != self._keys.system.public]

    async def number(self) -> str:
        """Return the number of the NATS server's process, which is new with each start."""
        found = await self._request("$SYS.REQ.SERVER.PING", "")
        return str(found["server"]["id"])

    async def update(self, account: Account) -> None:
        """Create an account, or set its limits."""
        await self._ask("UPDATE", account_claims(self._keys, account))

    async def delete(self, accounts: Sequence[str]) -> None:
        """Delete the accounts with these public keys, and end their connections. Their streams stay on the disk."""
        await self._ask("DELETE", deletion_claims(self._keys, accounts))

    async def _ask(self, action: str, content: str) -> Any:
        found = await self._request(f"$SYS.REQ.CLAIMS.{action}", content)
        if problem := found.get("error"):
            raise StreamServerError(f"The NATS server refuses a change of its accounts: {problem['description']}.")
        return found["data"]

    async def _request(self, subject: str, content: str) -> dict[str, Any]:
        try:
            answer = await self._client.request(subject, content.encode(), timeout=ANSWER_SECONDS)
        except (Error, OSError, TimeoutError) as exc:
            raise StreamServerError(f"The NATS server does not answer the hub: {exc!r}.") from exc
        found: dict[str, Any] = json.loads(answer.data)
        return found
