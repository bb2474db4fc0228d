"""Measures what servers use, where servers are containers on the machine of the hub."""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from hub.services.operators.usage import Measures
from spawner_config.containers.names import container_name

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS = 5.0

log = logging.getLogger("farandole.operators")


class ContainerMeasures:
    """Asks the engine for the memory of containers. Homes are volumes, whose size the engine does not tell the hub."""

    def __init__(self, engine: str, prefix: str) -> None:
        """Ask the engine at the URL ``engine`` for containers whose names begin with ``prefix``."""
        self._engine = engine.replace("tcp://", "http://", 1)
        self._prefix = prefix

    async def of(self, models: Sequence[dict[str, Any]]) -> Measures:
        """Return the memory of all servers that are running."""
        servers = [
            (model["name"], name) for model in models for name, server in model["servers"].items() if server["ready"]
        ]
        found = await asyncio.gather(*(self._memory(*server) for server in servers))
        known = {server: memory for server, memory in zip(servers, found, strict=True) if memory is not None}
        return Measures(memory=known, homes={})

    async def _memory(self, user: str, server: str) -> int | None:
        """Return the memory of a server in bytes, None if the engine does not tell it."""
        name = container_name(self._prefix, user, server)
        url = f"{self._engine}/containers/{name}/stats?stream=false&one-shot=true"
        try:
            answer = await AsyncHTTPClient().fetch(url, request_timeout=SECONDS, raise_error=False)
            return memory_of(json.loads(answer.body)) if answer.code == HTTPStatus.OK else None
        except (HTTPClientError, OSError, ValueError) as exc:
            log.warning("The memory of %s is not known: %s", name, exc)
            return None


def memory_of(stats: dict[str, Any]) -> int | None:
    """Return the memory in an engine's statistics, without the cache of files that are not in use, as `docker stats`.

    A container that has just ended has no memory.
    """
    memory = stats.get("memory_stats") or {}
    if "usage" not in memory:
        return None
    cache = (memory.get("stats") or {}).get("inactive_file", 0)
    return max(0, int(memory["usage"]) - int(cache))
