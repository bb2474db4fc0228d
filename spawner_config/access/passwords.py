"""Hashes passwords in threads, because a hash takes some tenths of a second and would block the event loop."""

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
"""The number of hashing threads: half of the cores, but from 1 to 4, so that many logins cannot keep the hub from doing
other work."""
HASH_SECONDS = 0.25
"""The approximate time in seconds that bcrypt needs for one hash with the cost factor used here."""
LONGEST_WAIT = 60.0
"""The longest time in seconds that a login may wait for its hash. This is enough for a class whose members all log in
at the same time."""
MOST_WAITING = int(LONGEST_WAIT / HASH_SECONDS)
"""How many logins may wait for each thread. Further logins are refused."""
DUMMY = b"$2b$12$6nRzqaqFgJ5MNFtd96ATW.cU4XIJpSFShm69LGyolqLX1mNtglGYW"
"""A hash that belongs to no account, with the same cost factor as real hashes."""


class PasswordHasher:
    """Hashes and compares passwords in a few threads, so that a flood of logins delays only other logins."""

    def __init__(self, threads: int = THREADS, most_waiting: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="farandole-passwords")
        self._most = threads * (1 + most_waiting)
        self._running = 0

    def check_room(self) -> None:
        """Raise HTTPError 429 if too many logins are waiting."""
        if self._running >= self._most:
            raise HTTPError(429, "Too many people are logging in at the moment. Try again in a minute.")

    async def hash(self, password: str) -> bytes:
        """Return a new hash of the password; raises HTTPError 429 if too many logins are waiting."""
        made: bytes = await self._run(lambda: bcrypt.hashpw(password.encode(), bcrypt.gensalt()))
        return made

    async def matches(self, password: str, hashed: bytes | None) -> bool:
        """Return whether the password matches the hash; raises HTTPError 429 if too many logins are waiting.

        If ``hashed`` is None or empty, the result is False after the same time, so that the time does not reveal which
        accounts exist.
        """
        same: bool = await self._run(lambda: bcrypt.checkpw(password.encode(), hashed or DUMMY))
        return same and bool(hashed)

    async def _run(self, work: Callable[[], Any]) -> Any:
        self.check_room()
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        finally:
            self._running -= 1
