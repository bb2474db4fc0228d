"""Ends the start of a server when the server listens for connections or its container has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dockerspawner import DockerSpawner

from spawner_config.refusals import refused_start

if TYPE_CHECKING:
    from jupyterhub.spawner import SpawnException

LISTEN_SECONDS = 240.0
"""The time in seconds that a server has to start listening. It is long because a whole class may start servers at the
same time on two cores."""
POLL_SECONDS = 2.0
"""The interval in seconds between requests to the engine. Attempts to connect to the server are more frequent."""
CONNECT_SECONDS = 0.2


class StartCleanup:
    """Cleans up after cancelled starts, for the spawners of containers and of pods.

    This mixin is not a subclass of Spawner, because JupyterHub requires every Spawner class to implement `start`.
    """

    async def poll_and_notify(self: Any) -> Any:
        """Poll as JupyterHub does, and clean up a server that has no container because its start was cancelled.

        JupyterHub cancels the start when a user stops a starting server. One second later, it refuses to stop the
        server if the cancelled start is still cleaning up. Without this method, JupyterHub would then treat the server
        as running although it has no container, and nobody could delete it.
        """
        status = await super().poll_and_notify()  # type: ignore[misc]
        if status is not None and self.server is not None and not self.pending:
            self.log.warning("%s has no container because its start was cancelled", self._log_name)
            await self.user.stop(self.name)
        return status


class ReadinessSpawner(StartCleanup, DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner whose start ends when the server listens or its container has ended.

    JupyterHub alone would wait for its timeout even after the container has ended.
    """

    async def start(self) -> Any:
        """Start the container and return the server's address; raises `SpawnException` if the server does not start."""
        host, port = await super().start()
        for _ in range(int(LISTEN_SECONDS / POLL_SECONDS)):
            if await listens(host, port, POLL_SECONDS):
                return host, port
            if (status := await self.poll()) is not None:
                raise refused_start(
                    f"The server ended while it started ({status or 'its container is gone'}). If it ran out of "
                    "memory, choose a larger profile. If it ends again, ask the administrator for the hub's log.",
                    reason="start",
                    status_code=500,
                )
        raise not_listening()


def not_listening() -> SpawnException:
    """Return the error for a server that is running but does not accept connections."""
    return refused_start(
        f"The server did not listen within {LISTEN_SECONDS:.0f} s. The host may be busy: try again in a minute.",
        reason="start",
        status_code=500,
    )


async def listens(host: str, port: int, seconds: float) -> bool:
    """Return whether the server accepts a connection within ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            while not await _connects(host, port):  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(CONNECT_SECONDS)
    except TimeoutError:
        return False
    return True


async def _connects(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
