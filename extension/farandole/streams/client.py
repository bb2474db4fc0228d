"""A connection to a NATS server for notebooks, which ends soon with a clear error if there is none."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any

from nats.errors import Error

from farandole.exceptions import StreamError
from farandole.streams.broker import Broker, hub_broker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client

CONNECT_SECONDS = 5.0

log = logging.getLogger("farandole.streams")


async def connect(url: str = "", **options: Any) -> Client:
    """Return a connection to the hub's NATS server as the user, or to the server at ``url``.

    ``options`` are further arguments of ``nats.connect``. Only the hub's own server gets the user's credentials. Raises
    `StreamError` if the hub has no such server, or if the server refuses the connection or does not answer.
    """
    broker = Broker(url) if url else hub_broker()
    client = broker.client()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.connect(**{"error_cb": _logged(client), **broker.options(), **options})
    except (TimeoutError, OSError, Error) as exc:
        # A client that got an invalid URL has no servers, and cannot be closed.
        if client.servers:
            await client.close()
        raise StreamError(
            f"The NATS server {_without_login(broker.url)} gives no connection: {_reason(client, exc)}. Restart your "
            "server if the hub's administrator has changed something, or try again later."
        ) from exc
    return client


def _without_login(url: str) -> str:
    """Return a URL without a name and a password, because notebooks are saved with their errors."""
    return re.sub(r"//[^/]*@", "//", url)


def _reason(client: Client, problem: Exception) -> str:
    """Return why a client is not connected. A TimeoutError has an empty message."""
    return str(client.last_error or problem) or "it does not answer"


def _logged(client: Client) -> Callable[[Exception], Awaitable[None]]:
    """Return a callback that logs errors of an existing connection in one line. Notebooks show what is logged."""

    async def log_error(error: Exception) -> None:
        if client.is_connected or client.is_reconnecting:
            log.warning("%s", error)

    return log_error
