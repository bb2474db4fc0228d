"""Sends requests for inference to a server: as many as it answers, or a number of them in each second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import aiohttp

CONNECTIONS = 8
TIMEOUT = aiohttp.ClientTimeout(total=30)
REQUEST = {"inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.0] * 16}]}


@dataclass
class Outcome:
    """The durations of the requests in seconds, why requests failed, the mixed answers, and the versions that answered.

    An answer without a version has failed.
    """

    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    mixed: int = 0
    versions: set[str] = field(default_factory=set)

    def p95_ms(self) -> float:
        """Return the duration in milliseconds that 95 % of the requests took at most."""
        return 1000 * sorted(self.seconds)[int(0.95 * len(self.seconds))]


async def as_many_as_possible(url: str, seconds: float, headers: Mapping[str, str] = MappingProxyType({})) -> float:
    """Return the requests a second that a server answers to `CONNECTIONS` clients that send without a pause."""
    outcome = Outcome()
    async with _session(headers) as session:
        end = time.perf_counter() + seconds

        async def client() -> None:
            while time.perf_counter() < end:
                await _send(session, url, outcome)

        await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    assert not outcome.failed, outcome.failed[0]
    return len(outcome.seconds) / seconds


async def at_a_rate(url: str, rate: float, count: int, headers: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    """Send ``count`` requests, ``rate`` in each second, whether or not earlier ones have been answered."""
    outcome, begun = Outcome(), time.perf_counter()
    async with _session(headers) as session, asyncio.TaskGroup() as sending:
        for number in range(count):
            await asyncio.sleep(begun + number / rate - time.perf_counter())
            sending.create_task(_send(session, url, outcome))
    return outcome


def _session(headers: Mapping[str, str]) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers=headers, timeout=TIMEOUT, connector=aiohttp.TCPConnector(limit=0))


async def _send(session: aiohttp.ClientSession, url: str, outcome: Outcome) -> None:
    begun = time.perf_counter()
    try:
        async with session.post(url, json=REQUEST) as answer:
            body: dict[str, Any] = await answer.json(content_type=None)
            status = answer.status
    except (aiohttp.ClientError, TimeoutError, ValueError) as exc:
        outcome.failed.append(repr(exc))
        return
    outcome.seconds.append(time.perf_counter() - begun)
    if status != 200 or body.get("model_version") is None:
        outcome.failed.append(f"{status}: {body}")
        return
    version = body["model_version"]
    outcome.versions.add(version)
    # The bench's model returns its version.
    outcome.mixed += body["outputs"][0]["data"][0] != float(version)
