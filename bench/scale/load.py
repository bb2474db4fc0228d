"""Sends requests to a hub, and measures their duration and the CPU time that the hub and its proxy use."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil

from tests.clients.hosts import url_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STARTS_AT_ONCE = 8
READY_SECONDS = 120.0
MEGABYTE = 1e6


class StartError(RuntimeError):
    """Raised when the hub fails to start a server."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load on a hub, in three phases.

    - The bench first sends ``in_turns`` requests, one at a time.
    - It then sends ``requests`` requests at an even rate of ``per_second``. A thousand notebook servers with hidden
      panels send 40 per second.
    - At the end, ``at_once`` clients send requests for ``seconds`` seconds.
    """

    in_turns: int = 100
    requests: int = 400
    per_second: float = 40.0
    at_once: int = 16
    seconds: float = 6.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The number of requests, the time in which they were answered, and the CPU time of each process, in seconds."""

    requests: int
    seconds: float
    cpu: dict[str, float]

    def milliseconds(self, process: str) -> float:
        """Return the CPU time of a process per request, in milliseconds."""
        return 1000 * self.cpu[process] / self.requests


class Meter:
    """Reads the CPU time and the memory of named processes."""

    def __init__(self, processes: dict[str, int]) -> None:
        self._processes = {name: psutil.Process(number) for name, number in processes.items()}

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds that each process has used."""
        return {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}

    def megabytes(self) -> dict[str, float]:
        """Return the resident memory of each process in MB."""
        return {name: process.memory_info().rss / MEGABYTE for name, process in self._processes.items()}


class Api:
    """A client of the hub's REST API with an administrator's rights."""

    def __init__(self, url: str, token: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._headers = {"Authorization": f"token {token}"}
        self._session = session

    async def request(self, method: str, path: str, **options: Any) -> int:
        """Send a request, read the whole response and return its status; retry after an answer 429 with Retry-After."""
        async with self._session.request(method, url_of(self._url, path), headers=self._headers, **options) as answer:
            await answer.read()
            pause = answer.headers.get("Retry-After")
            if answer.status == 429 and pause is not None:
                await asyncio.sleep(float(pause))
                return await self.request(method, path, **options)
            answer.raise_for_status()
            return answer.status

    async def add_users(self, names: Sequence[str]) -> None:
        """Add users to the hub, start their servers and wait until the servers are ready."""
        await self.request("POST", "/hub/api/users", json={"usernames": list(names)})
        turns = asyncio.Semaphore(STARTS_AT_ONCE)

        async def start(name: str) -> None:
            async with turns:
                await self.request("POST", f"/hub/api/users/{name}/server")

        await asyncio.gather(*(start(name) for name in names))
        for name in names:
            await self._wait_ready(name)

    async def _wait_ready(self, name: str) -> None:
        url = f"{self._url}/hub/api/users/{name}"
        async with asyncio.timeout(READY_SECONDS):
            while True:
                async with self._session.get(url, headers=self._headers) as answer:
                    server = (await answer.json())["servers"].get("")
                if server is None:
                    raise StartError(f"the server of {name} did not start; see the hub's log")
                if server["ready"]:
                    return
                await asyncio.sleep(0.5)

    async def time(self, path: str) -> float:
        """Return the duration of a request in seconds."""
        began = time.perf_counter()
        await self.request("GET", path)
        return time.perf_counter() - began

    async def times(self, paths: Iterable[str], *, per_second: float) -> list[float]:
        """Send requests at an even rate, without waiting for earlier responses; return their durations in seconds."""
        began = time.perf_counter()

        async def one(number: int, path: str) -> float:
            await asyncio.sleep(began + number / per_second - time.perf_counter())
            return await self.time(path)

        return list(await asyncio.gather(*(one(number, path) for number, path in enumerate(paths))))

    async def cost(self, paths: Sequence[str], load: Load, meter: Meter) -> Cost:
        """Request these paths repeatedly with concurrent clients, and return the cost."""
        before, began, turns = meter.cpu(), time.perf_counter(), itertools.cycle(paths)

        async def ask() -> int:
            count = 0
            while time.perf_counter() - began < load.seconds:
                await self.request("GET", next(turns))
                count += 1
            return count

        requests = sum(await asyncio.gather(*(ask() for _ in range(load.at_once))))
        cpu = {name: after - before[name] for name, after in meter.cpu().items()}
        return Cost(requests=requests, seconds=time.perf_counter() - began, cpu=cpu)
