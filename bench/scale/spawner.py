"""The spawner of the bench's hub, whose servers all run in the process of `bench.scale.standin`."""

from __future__ import annotations

import os
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import url_path_join
from tornado.escape import json_encode
from tornado.httpclient import AsyncHTTPClient, HTTPRequest

ADDRESS = "FARANDOLE_BENCH_STAND_IN"
"""The environment variable with the address of the stand-in process."""


class StandInSpawner(Spawner):  # type: ignore[misc]
    """Registers servers with the stand-in process instead of starting processes."""

    gpus: int = 0
    gpu_class: str | None = None
    wait_for_gpus: bool = False
    _started = False

    async def start(self) -> str:
        """Register the server with the stand-in process, and return the address of that process."""
        environment = self.get_env()
        server = {
            "path": self.server.base_url,
            "name": self.name,
            "ranks": int(environment.get("FARANDOLE_RANKS", "0")),
            "activity_url": environment["JUPYTERHUB_ACTIVITY_URL"],
            "token": environment["JUPYTERHUB_API_TOKEN"],
        }
        await self._send("start", server)
        self._started = True
        return os.environ[ADDRESS]

    async def stop(self, now: bool = False) -> None:  # noqa: ARG002
        """Remove the server from the stand-in process."""
        self._started = False
        await self._send("stop", {"path": self.server.base_url})

    async def poll(self) -> int | None:
        """Return None while the server is running, otherwise 0."""
        return None if self._started else 0

    async def _send(self, what: str, body: dict[str, Any]) -> None:
        address = url_path_join(os.environ[ADDRESS], what)
        # The timeouts are long, because hundreds of requests may be queued in this HTTP client.
        request = HTTPRequest(address, method="POST", body=json_encode(body), connect_timeout=60, request_timeout=60)
        await AsyncHTTPClient().fetch(request)
