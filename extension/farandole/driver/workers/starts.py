"""Starts a server on a hub, and follows its start."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from farandole.driver.workers.client import HubClient
from farandole.exceptions import HubBusyError, WorkerStartError

if TYPE_CHECKING:
    from farandole.driver.workers.worker import Progress

SERVER_START_SECONDS = float(os.environ.get("FARANDOLE_START_SECONDS") or 120)
"""The default timeout for starting a cluster or an endpoint, in seconds. Hubs whose servers may take longer set
``FARANDOLE_START_SECONDS``, because a shorter timeout here would hide the hub's own error."""


async def start_server(
    client: HubClient, name: str, user_options: dict[str, Any], *, what: str, progress: Progress, timeout: float
) -> str:
    """Start a server and return its URL or its path on the hub. ``what`` is what messages call it.

    ``timeout`` is in seconds and does not include the time in a queue for GPUs.

    Raises:
        WorkerStartError: the server did not start, or not in time.
        HubError: the hub refused the request.
    """
    await _request(client, name, user_options, timeout)
    message = "no event yet"
    try:
        async with asyncio.timeout(timeout) as deadline:
            async with aclosing(client.progress(name)) as events:
                async for event in events:
                    message = event.get("message", message)
                    if "queue" in event:
                        progress(f"{what}: {event['message']}")
                        # The timeout begins when the server leaves the queue.
                        waiting = event["queue"] > 0
                        deadline.reschedule(None if waiting else asyncio.get_running_loop().time() + timeout)
                    if event.get("failed"):
                        raise WorkerStartError(f"{message} ({what} did not start)")
                    if event.get("ready"):
                        progress(f"{what} is ready")
                        return str(event["url"])
    except TimeoutError as exc:
        raise WorkerStartError(
            f"{what} did not start within {timeout:g} s. The hub's last message: {message}. What had been started was "
            "stopped; try again with a longer `--timeout`, or look at the hub's log."
        ) from exc
    raise WorkerStartError(f"the hub sent no more events about {what} before it was ready: {message}")


async def _request(client: HubClient, name: str, user_options: dict[str, Any], timeout: float) -> None:
    """Request the start of a server, and retry as long as the hub answers that too many servers are starting."""
    give_up = asyncio.get_running_loop().time() + timeout
    while True:
        try:
            return await client.start_server(name, user_options)
        except HubBusyError as busy:
            if asyncio.get_running_loop().time() + busy.retry_seconds > give_up:
                raise
            pause = busy.retry_seconds
        await asyncio.sleep(pause)
