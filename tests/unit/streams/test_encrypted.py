"""A client that shall encrypt sends nothing to a server without TLS, such as one between it and the right server."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from farandole import streams
from farandole.exceptions import StreamError
from farandole.streams import Broker
from nats.errors import Error, NoServersError

from spawner_config.streams.certificates import authority_certificate
from spawner_config.streams.claims import credentials
from spawner_config.streams.keys import Keys
from tests.brokers import run_broker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEYS = Keys("0123456789abcdef" * 4)
LOGIN = credentials(KEYS.system, KEYS.user("ada"), "ada")
AUTHORITY = authority_certificate(KEYS.authority)
REFUSAL = "the server does not offer TLS, so nothing was sent to it"
ONCE = {"allow_reconnect": False, "connect_timeout": 10}


@asynccontextmanager
async def listener() -> AsyncIterator[tuple[int, bytearray]]:
    """Yield the port of a server that asks for a login without TLS, and what it receives."""
    received = bytearray()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        about = {"nonce": "abc", "auth_required": True, "headers": True, "max_payload": 2**20}
        writer.write(b"INFO " + json.dumps(about).encode() + b"\r\n")
        while line := await reader.readline():
            received.extend(line)
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], received


@pytest.mark.parametrize(("scheme", "ca"), [("tls", ""), ("tls", AUTHORITY), ("nats", AUTHORITY)])
async def test_nothing_is_sent_to_a_server_without_tls(scheme: str, ca: str) -> None:
    async with listener() as (port, received):
        broker = Broker(f"{scheme}://127.0.0.1:{port}", LOGIN, ca)
        client = broker.client()
        with pytest.raises(Error, match=REFUSAL):
            await client.connect(**broker.options(), **ONCE)
        await client.close()
    assert bytes(received) == b""


async def test_nothing_is_sent_when_a_lost_connection_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listener() as (port, received):
        broker = Broker(f"tls://127.0.0.1:{port}")
        client, refused = broker.client(), asyncio.Event()

        async def note(error: Exception) -> None:
            if REFUSAL in str(error):
                refused.set()

        # The first connection is as if it had been encrypted.
        with monkeypatch.context() as patch:
            patch.setattr("farandole.streams.encrypted.EncryptedClient._connect_command", lambda _: b"CONNECT {}\r\n")
            await client.connect(**broker.options(), error_cb=note, reconnect_time_wait=0)
        received.clear()
        await client.force_reconnect()
        await asyncio.wait_for(refused.wait(), 30)
        await client.close()
    assert bytes(received) == b""


async def test_a_real_server_without_tls_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("farandole.streams.client.CONNECT_SECONDS", 1)
    with run_broker(tmp_path, "nats") as running:
        url = running.url.replace("nats:", "tls:")
        with pytest.raises(StreamError, match=f"{REFUSAL}.*write nats:// instead of tls://"):
            await streams.connect(url)
        await (await streams.connect(running.url)).close()


async def test_the_warning_of_each_closed_connection_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    client = Broker("tls://127.0.0.1:1").client()
    with pytest.raises(NoServersError):
        await client.connect("tls://127.0.0.1:1", **ONCE, max_reconnect_attempts=1, reconnect_time_wait=0)
    logger = logging.getLogger("asyncio")
    logger.warning("returning true from eof_received() has no effect when using ssl")
    logger.warning("something else")
    assert "something else" in caplog.messages
    assert "eof_received" not in caplog.text
