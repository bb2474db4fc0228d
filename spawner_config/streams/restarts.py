"""Finds out whether the hub's NATS server has been started again, as a new container is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spawner_config.streams.connection import StreamServerError

if TYPE_CHECKING:
    from spawner_config.streams.connection import Server


class RestartWatch:
    """Compares the process of a NATS server with that of the last call.

    A NATS server that was away at the first call counts as started again when it is there.
    """

    def __init__(self, server: Server) -> None:
        """Watch this server."""
        self._server = server
        self._last: str | None = None

    async def saw_start(self) -> bool:
        """Return whether the server has been started again since the last call. One that is away has not."""
        try:
            async with self._server.connection() as connection:
                found = await connection.number()
        except StreamServerError:
            self._last = self._last or ""
            return False
        last, self._last = self._last, found
        return last not in (None, found)
