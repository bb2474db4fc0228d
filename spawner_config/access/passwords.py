"""Hashes passwords in threads: a hash takes some tenths of a second, in which the event loop would answer nobody."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import bcrypt
from tornado.web import HTTPError

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = max(1, min(4, (os.cpu_count() or 2) // 2))
"""At most half of the cores: a flood of logins leaves the others to the hub."""
HASH_SECONDS = 0.25
"""About what bcrypt takes with the cost of real hashes."""
LONGEST_WAIT = 60.0
"""Seconds in which a whole class that logs in at once gets its turn; people do not wait longer at a login page."""
MOST_WAITING = int(LONGEST_WAIT / HASH_SECONDS)
"""Logins that may wait for each thread; more requests are refused."""
DUMMY = b"$2b$12$6nRzqaqFgJ5MNFtd96ATW.cU4XIJpSFShm69LGyolqLX1mNtglGYW"
"""The hash of nobody's password, with the cost of real ones."""


class PasswordHasher:
    """Hashes and compares passwords, a few at a time, so that many logins slow down nothing but each other."""

    def __init__(self, threads: int = THREADS, most_waiting: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="farandole-passwords")
        self._most = threads * (1 + most_waiting)
        self._running = 0

    def check_room(self) -> None:
        """Raise HTTPError 429 if too many logins wait already."""
        if self._running >= self._most:
            raise HTTPError(429, "Too many people are logging in at the moment. Try again in a minute.")

    async def hash(self, password: str) -> bytes:
        """Return a new hash of a password; raises HTTPError 429."""
        made: bytes = await self._run(lambda: bcrypt.hashpw(password.encode(), bcrypt.gensalt()))
        return made

    async def matches(self, password: str, hashed: bytes | None) -> bool:
        """Return whether a password has this hash; raises HTTPError 429.

        Without a hash the answer is no, after the same time: how long a login takes must not tell which accounts exist.
        """
        same: bool = await self._run(lambda: bcrypt.checkpw(password.encode(), hashed or DUMMY))
        return same and hashed is not None

    async def _run(self, work: Callable[[], Any]) -> Any:
        self.check_room()
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._running -= 1
