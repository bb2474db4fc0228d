"""Floods the hub with one user's requests over 20 connections, and measures the response times for another user."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from farandole.driver.workers.addresses import LocalhostResolver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CONNECTIONS = 20
PROBE_SECONDS = 0.1
NOTE = "n" * 4_000
OPTION = "o" * 16_000
"""The note and the option are about as long as the hub allows."""
BODY = 4_000_000
CHUNK = 65536


@dataclass(kw_only=True)
class Flood:
    """Requests of ``user`` with ``token``, optionally with sign-ups, and of another user with the token ``probe``."""

    url: str
    user: str
    token: str
    probe: str
    sign_ups: bool = False
    statuses: dict[str, dict[int, int]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)

    def run(self, duration: float) -> None:
        """Flood the hub for ``duration`` seconds."""
        asyncio.run(self._run(duration))

    @property
    def p99(self) -> float:
        """The 99th percentile of the response times for the other user, in seconds."""
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))]

    async def _run(self, duration: float) -> None:
        end = time.monotonic() + duration
        timeout = aiohttp.ClientTimeout(total=60)
        many, one = (aiohttp.TCPConnector(limit=limit, resolver=LocalhostResolver()) for limit in (CONNECTIONS, 1))
        async with (
            aiohttp.ClientSession(connector=many, timeout=timeout) as attacker,
            aiohttp.ClientSession(connector=one, timeout=timeout) as other,
        ):
            attacks = [self._attack(attacker, self._requests(number), end) for number in range(CONNECTIONS)]
            await asyncio.gather(self._probe(other, end), *attacks)

    async def _attack(self, session: aiohttp.ClientSession, wanted: Iterator[Any], end: float) -> None:
        while time.monotonic() < end:
            method, path, options = next(wanted)
            try:
                async with session.request(method, f"{self.url}{path}", **options) as answer:
                    await answer.read()
                    status = answer.status
            except (aiohttp.ClientError, TimeoutError):
                status = 0
            counts = self.statuses.setdefault(f"{method} {path.rpartition('/')[0]}", {})
            counts[status] = counts.get(status, 0) + 1

    def _requests(self, number: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
        own = {"headers": {"Authorization": f"token {self.token}"}}
        users = f"/hub/api/users/{quote(self.user, safe='')}"
        for turn in itertools.count(number, CONNECTIONS):
            options = {"user_options": {"profile": OPTION}}
            yield "POST", f"{users}/tokens", {"json": {"note": NOTE}, **own}
            yield "PUT", f"{users}/servers/kept{turn}", {"json": options, **own}
            yield "POST", f"{users}/servers/asked{turn}", {"json": options, **own}
            yield "POST", f"{users}/servers/flood{turn}-w0", {"json": {"role": "worker"}, **own}
            yield "PATCH", f"{users}/server", {"json": options, **own}
            yield "GET", f"{users}/tokens", own
            yield "POST", "/hub/login", {"data": _large()}
            yield "POST", f"{users}/servers/big{turn}", {"data": _large(), **own}
            if self.sign_ups:
                yield "POST", "/hub/signup", {"data": {"username": f"u{turn}", "signup_password": "x" * 12}}

    async def _probe(self, session: aiohttp.ClientSession, end: float) -> None:
        headers = {"Authorization": f"token {self.probe}"}
        while time.monotonic() < end:
            begin = time.monotonic()
            async with session.get(f"{self.url}/hub/api/user", headers=headers) as answer:
                answer.raise_for_status()
                await answer.read()
            self.seconds.append(time.monotonic() - begin)
            await asyncio.sleep(PROBE_SECONDS)


async def _large() -> AsyncIterator[bytes]:
    for _ in range(BODY // CHUNK):
        yield bytes(CHUNK)
