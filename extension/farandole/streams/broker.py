"""The address of a NATS server, and how to log in there."""

from __future__ import annotations

import os
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nkeys
from nats.aio.client import Client, RawCredentials

from farandole.exceptions import StreamError
from farandole.streams.encrypted import EncryptedClient

if TYPE_CHECKING:
    from collections.abc import Mapping

URL = "FARANDOLE_STREAMS_URL"
CREDENTIALS = "FARANDOLE_STREAMS_CREDENTIALS"
CA = "FARANDOLE_STREAMS_CA"
CREDENTIALS_FORM = re.compile(
    r"^-+BEGIN NATS USER JWT-+\n\S+\n.*^-+BEGIN USER NKEY SEED-+\n(?P<seed>\S+)\n", re.DOTALL | re.MULTILINE
)
"""A file of credentials. Source: https://docs.nats.io/using-nats/developer/connecting/creds"""


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
        return found

    def client(self) -> Client:
        """Return a client without a connection. It sends nothing to a server without TLS if the URL asks for TLS."""
        return EncryptedClient() if self.ca or self.url.startswith("tls:") else Client()

    async def connect(self, **options: Any) -> Client:
        """Return a connection to the server; ``options`` are further arguments of ``nats.connect``.

        Raises the errors of ``nats.connect``, which by default tries for minutes to reach a server.
        """
        client = self.client()
        await client.connect(**{**self.options(), **options})
        return client

    def _context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cadata=self.ca)
        except ssl.SSLError as exc:
            raise StreamError(f"The certificate of the authority of {self.url} is invalid: {exc}.") from exc


def check_credentials(text: str, name: str) -> None:
    """Raise `StreamError` if a text is not the content of a file of credentials, which the error calls ``name``.

    nats-py would notice this when it connects, and raise errors of several libraries.
    """
    found = CREDENTIALS_FORM.search(text)
    try:
        if found is None:
            raise StreamError(
                f"{name} is not a file of NATS credentials (.creds), which has a JWT and the seed of a key. Create one "
                "with `nsc generate creds`, or ask the administrator of the NATS server for it."
            )
        nkeys.from_seed(bytearray(found["seed"], "ascii")).wipe()
    except (nkeys.NkeysError, ValueError) as exc:
        raise StreamError(f"The seed in the file of NATS credentials {name} is damaged. Copy the file again.") from exc


def hub_broker(environ: Mapping[str, str] = os.environ) -> Broker:
    """Return the hub's NATS server, with the user's credentials. Raises `StreamError` if the hub has none."""
    if not environ.get(URL):
        raise StreamError(
            "This hub has no server for streams, or this process may not use it, as those of workers may not. Restart "
            "your notebook server, ask the administrator to enable streams, or name another NATS server: "
            "nats://HOST:4222."
        )
    return Broker(environ[URL], environ.get(CREDENTIALS, ""), environ.get(CA, ""))
