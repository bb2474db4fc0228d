"""Measures what servers and homes use, where servers are processes of this machine."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import psutil
from jupyterhub.slugs import safe_slug

from hub.process import processes_of
from hub.services.operators.usage import Measures

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

HOMES_SECONDS = 600.0
"""How long the disk use of homes is not measured again, because a large home takes long."""
BLOCK = 512
"""The unit of ``st_blocks`` in bytes."""


def memory_of_servers(state: Path) -> dict[tuple[str, str], int]:
    """Return the resident memory in bytes of each server's processes, by user and server."""
    found: Counter[tuple[str, str]] = Counter()
    for process in processes_of(state):
        try:
            environment = process.environ()
            if user := environment.get("JUPYTERHUB_USER"):
                found[user, environment.get("JUPYTERHUB_SERVER_NAME", "")] += process.memory_info().rss
        except psutil.Error:
            continue
    return dict(found)


class LocalMeasures:
    """Measures the servers and homes of a hub with local processes."""

    def __init__(self, state: Path) -> None:
        """Measure what belongs to the hub with this state folder."""
        self._state = state
        self._homes = Homes(state)

    async def of(self, models: Sequence[dict[str, Any]]) -> Measures:
        """Return the memory of all servers, and the homes of these users as far as they are known."""
        memory = await asyncio.to_thread(memory_of_servers, self._state)
        return Measures(memory=memory, homes=self._homes.sizes([model["name"] for model in models]))


class Homes:
    """The disk use of homes, measured in a thread. A page shows the last known numbers and waits for none.

    Metrics ask for the users with a server, and the page for all users. Each home therefore has its own time.
    """

    def __init__(self, state: Path) -> None:
        """Measure homes in the state folder of a hub with local processes."""
        self._homes = state / "homes"
        self._known: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._measuring: asyncio.Task[None] | None = None

    def sizes(self, users: Collection[str]) -> dict[str, int]:
        """Return the known sizes in bytes, and begin to measure those again that are old."""
        old = [user for user in users if time.monotonic() >= self._due.get(user, 0.0)]
        if old and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.ensure_future(self._measure(old))
        return {user: self._known[user] for user in users if user in self._known}

    async def _measure(self, users: list[str]) -> None:
        for user in users:
            self._known[user] = await asyncio.to_thread(disk_use, self._homes / safe_slug(user))
            self._due[user] = time.monotonic() + HOMES_SECONDS


def disk_use(folder: Path) -> int:
    """Return the bytes on disk of all files below a folder; links are not followed, and unreadable folders skipped."""
    total = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            try:
                total += os.lstat(f"{place}{os.sep}{name}").st_blocks * BLOCK
            except OSError:
                continue
    return total
