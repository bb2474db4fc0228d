"""A client of NATS that logs in and sends messages only over an encrypted connection."""

from __future__ import annotations

import logging
from typing import Any

from nats.aio.client import Client
from nats.errors import Error


class UnencryptedError(Error):
    """Raised when a server does not offer TLS, before anything is sent to it."""


class EncryptedClient(Client):
    """A client that refuses servers without TLS, at each connection that it makes.

    The scheme ``tls://`` and a context for TLS do not make nats-py do this: it encrypts a connection only if the server
    asks for it. A machine between the client and the server could leave that out, and read what the client sends.
    """

    async def connect(self, *args: Any, **options: Any) -> None:
        """Connect as nats-py does, without the warnings that closing encrypted connections causes."""
        logging.getLogger("asyncio").addFilter(_is_worth_logging)
        await super().connect(*args, **options)

    def _connect_command(self) -> bytes:
        """Return the login, which is the first message to a server, unless the connection is not encrypted.

        nats-py calls this after the TLS handshake, which it makes if, and only if, the server requires it.
        """
        if not self._server_info.get("tls_required"):
            raise UnencryptedError(
                "the server does not offer TLS, so nothing was sent to it; configure TLS at the server or, if you "
                "trust the network, write nats:// instead of tls://"
            )
        return super()._connect_command()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether asyncio logs something else than a warning that nats-py causes whenever it closes a connection.

    See https://github.com/nats-io/nats.py/issues/574
    """
    return "eof_received() has no effect when using ssl" not in record.getMessage()
