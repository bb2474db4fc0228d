"""Frees the GPUs of a server after the engine has removed the server's container."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from tornado.log import app_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spawner_config.gpus.model import Key

Remove: TypeAlias = "Callable[[], Awaitable[str | None]]"
"""Tries once to remove a container. Returns None if it no longer exists, else its name and why it still exists."""

TIMEOUT = 600.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class GpuRelease:
    """The containers that are being removed, and those that could not be removed within ``timeout`` seconds.

    A container that was not removed keeps its GPUs, because two servers must never share a GPU. The next request for
    GPUs tries the removal again.
    """

    def __init__(self, free: Callable[[Key], None], timeout: float = TIMEOUT) -> None:
        """Start with no removals; ``free`` is called for each server whose container has been removed."""
        self.timeout = timeout
        self._free = free
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._stuck: dict[Key, Remove] = {}
        self._refusals: dict[Key, str] = {}

    def begin(self, key: Key, remove: Remove) -> asyncio.Task[None]:
        """Begin removing a server's container, unless the removal is already in progress, and return its task."""
        if key not in self._tasks:
            self._stuck.pop(key, None)
            self._tasks[key] = asyncio.create_task(self._end(key, remove))
            self._tasks[key].add_done_callback(lambda _: self._tasks.pop(key))
        return self._tasks[key]

    def retry(self) -> None:
        """Try again to remove the containers that were not removed in time."""
        for key, remove in list(self._stuck.items()):
            self.begin(key, remove)

    def in_progress(self) -> list[asyncio.Task[None]]:
        """Return the tasks of the removals in progress."""
        return [task for task in self._tasks.values() if not task.done()]

    def refusal(self, key: Key) -> str | None:
        """Return why a server's container still exists, with its name; None if no attempt has failed."""
        return self._refusals.get(key)

    def stuck(self) -> list[Key]:
        """Return the servers whose containers were not removed in time."""
        return sorted(self._stuck)

    async def _end(self, key: Key, remove: Remove) -> None:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self.timeout, FIRST_PAUSE
        while (refusal := await remove()) is not None:
            self._refusals[key] = refusal
            if loop.time() > end:
                self._give_up(key, remove)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        self._refusals.pop(key, None)
        self._free(key)

    def _give_up(self, key: Key, remove: Remove) -> None:
        self._stuck[key] = remove
        app_log.error(
            "The engine did not remove a container for %.0f s, and its GPUs stay in use. %s. Remove it (docker rm "
            "--force) or restart the engine; the hub tries again at the next request for GPUs.",
            self.timeout,
            self._refusals[key],
        )
