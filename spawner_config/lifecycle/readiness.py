"""A server that dies while it starts is told at once, and one of many that start together gets its time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dockerspawner import DockerSpawner

from spawner_config.refusals import refused_start

if TYPE_CHECKING:
    from jupyterhub.spawner import SpawnException

LISTEN_SECONDS = 240.0
"""A whole course may start at once on two cores."""
POLL_SECONDS = 2.0
"""Between questions to the engine; connections are tried much more often."""
CONNECT_SECONDS = 0.2


class StartCleanup:
    """What spawners of either kind of container do about starts that were given up.

    Not a Spawner itself: the hub wants of each that it can start something.
    """

    async def poll_and_notify(self: Any) -> Any:
        """Return the status, as the hub's own does; end a server whose start was given up while the engine was slow.

        The hub cancels such a start, and a second later it refuses to stop what has not ended yet. The server would
        count as running then, without a container, and nobody could delete it.
        """
        status = await super().poll_and_notify()  # type: ignore[misc]
        if status is not None and self.server is not None and not self.pending:
            self.log.warning("%s has no container: its start was given up", self._log_name)
            await self.user.stop(self.name)
        return status


class ReadinessSpawner(StartCleanup, DockerSpawner):  # type: ignore[misc]
    """A DockerSpawner whose start is over when the server listens, or when its container has ended.

    The hub alone would wait for an answer until its patience is over, whatever became of the container.
    """

    async def start(self) -> Any:
        """Start the container and return the server's address; raises `SpawnException` when it ends or stays mute."""
        host, port = await super().start()
        for _ in range(int(LISTEN_SECONDS / POLL_SECONDS)):
            if await listens(host, port, POLL_SECONDS):
                return host, port
            if (status := await self.poll()) is not None:
                raise refused_start(
                    f"The server ended while it started ({status or 'its container is gone'}). If its memory was "
                    "short, choose a larger profile; if it ends again, ask the administrator for the hub's log.",
                    reason="start",
                    status_code=500,
                )
        raise not_listening()


def not_listening() -> SpawnException:
    """Return what ends the start of a server that runs and accepts no connection."""
    return refused_start(
        f"The server did not listen within {LISTEN_SECONDS:.0f} s. The host may be busy: try again in a minute.",
        reason="start",
        status_code=500,
    )


async def listens(host: str, port: int, seconds: float) -> bool:
    """Return whether a connection could be made within that time."""
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
