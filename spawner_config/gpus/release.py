"""Containers on their way out: their GPUs are free once the engine has removed them, and not before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from tornado.log import app_log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spawner_config.gpus.model import Key

Remove: TypeAlias = "Callable[[], Awaitable[str | None]]"
"""Tries once to remove a container; returns None once it is gone, before that its name and why it is not."""

PATIENCE = 600.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class GpuRelease:
    """What is being removed, and what the engine would not remove for ``patience`` seconds.

    The latter keeps its GPUs, for two servers must never share one; it is tried again when somebody asks for GPUs.
    """

    def __init__(self, free: Callable[[Key], None], patience: float = PATIENCE) -> None:
        """Begin with nothing; ``free`` is called for each server whose container is gone."""
        self.patience = patience
        self._free = free
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._stuck: dict[Key, Remove] = {}
        self._refusals: dict[Key, str] = {}

    def begin(self, key: Key, remove: Remove) -> asyncio.Task[None]:
        """Begin, or go on, to remove a server's container."""
        if key not in self._tasks:
            self._stuck.pop(key, None)
            self._tasks[key] = asyncio.create_task(self._end(key, remove))
            self._tasks[key].add_done_callback(lambda _: self._tasks.pop(key))
        return self._tasks[key]

    def retry(self) -> None:
        """Begin anew with all that was given up."""
        for key, remove in list(self._stuck.items()):
            self.begin(key, remove)

    def going(self) -> list[asyncio.Task[None]]:
        """Return what is being removed."""
        return [task for task in self._tasks.values() if not task.done()]

    def refusal(self, key: Key) -> str | None:
        """Return a server's container and why it is still there; None where there is none, or no try yet."""
        return self._refusals.get(key)

    def stuck(self) -> list[Key]:
        """Return the servers whose containers were given up."""
        return sorted(self._stuck)

    async def _end(self, key: Key, remove: Remove) -> None:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self.patience, FIRST_PAUSE
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
            "The engine did not remove a container for %.0f s, and its GPUs stay taken. %s. Remove it (docker rm "
            "--force) or restart the engine; the hub tries again when somebody asks for GPUs.",
            self.patience,
            self._refusals[key],
        )
