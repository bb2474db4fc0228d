"""The address of a NATS server, and how to log in there."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nats
from nats.aio.client import RawCredentials

from farandole.exceptions import StreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client

URL = "FARANDOLE_STREAMS_URL"
CREDENTIALS = "FARANDOLE_STREAMS_CREDENTIALS"
CA = "FARANDOLE_STREAMS_CA"


@dataclass(frozen=True)
class Broker:
    """A NATS server.

    Attributes:
        url: its address, such as ``nats://127.0.0.1:4222`` or ``tls://streams:4222``.
        credentials: the content of a file of credentials (``.creds``), or empty if the server needs none.
        ca: the certificate of the server's authority in PEM format, or empty for those that the system trusts.
    """

    url: str
    credentials: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)

    def options(self) -> dict[str, Any]:
        """Return the arguments of ``nats.connect``. Raises `StreamError` if the authority's certificate is invalid."""
        found: dict[str, Any] = {"servers": self.url}
        if self.credentials:
            found["user_credentials"] = RawCredentials(self.credentials)
        if self.ca:
            found["tls"] = self._context()
        if self.url.startswith("tls:"):
            logging.getLogger("asyncio").addFilter(_is_worth_logging)
        return found

    async def connect(self, **options: Any) -> Client:
        """Return a connection to the server; ``options`` are further arguments of ``nats.connect``.

        Raises the errors of ``nats.connect``, which by default tries for minutes to reach a server.
        """
        return await nats.connect(**{**self.options(), **options})

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cadata=self.ca)
        except ssl.SSLError as exc:
            raise StreamError(f"The certificate of the authority of {self.url} is invalid: {exc}.") from exc


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return whether asyncio logs something else than a warning that nats-py causes whenever it closes a connection.

    See https://github.com/nats-io/nats.py/issues/574
    """
    return "eof_received() has no effect when using ssl" not in record.getMessage()


def hub_broker(environ: Mapping[str, str] = os.environ) -> Broker:
    """Return the hub's NATS server, with the user's credentials. Raises `StreamError` if the hub has none."""
    if not environ.get(URL):
        raise StreamError(
            "This hub has no server for streams, or this server is older than it. Restart your server, ask the "
            "administrator to enable streams, or name another NATS server: nats://HOST:4222."
        )
    return Broker(environ[URL], environ.get(CREDENTIALS, ""), environ.get(CA, ""))
