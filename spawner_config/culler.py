"""``python -m spawner_config.culler``: the service of the hub that stops idle servers; see `spawner_config.idle`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import dateutil.parser
from jupyterhub_idle_culler import IdleCuller
from tornado.httpclient import AsyncHTTPClient

from spawner_config.idle import IdleLimits, is_idle


@dataclass(frozen=True, kw_only=True)
class Arbiter:
    """What the culler asks about each server."""

    limits: IdleLimits
    api_url: str
    token: str
    watched_since: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def __call__(self, *, server: dict[str, Any], **_: Any) -> bool:
        """Return whether the server (as the hub's API describes it) is to be stopped."""
        if not self._idle(server["name"], {server["name"]: server}):
            return False
        # The culler's list may be some seconds old, and the user's other servers count too.
        return self._idle(server["name"], await self._servers_beside(server))

    def _idle(self, name: str, servers: dict[str, dict[str, Any]]) -> bool:
        uses = {each: _time(model["last_activity"] or model["started"]) for each, model in servers.items()}
        return is_idle(name, uses, self.limits, now=datetime.now(UTC), watched_since=self.watched_since)

    async def _servers_beside(self, server: dict[str, Any]) -> dict[str, dict[str, Any]]:
        users = f"{urlsplit(self.api_url).path}/users/"
        user = server["progress_url"].removeprefix(users).split("/")[0]
        answer = await AsyncHTTPClient().fetch(
            f"{self.api_url}/users/{user}", headers={"Authorization": f"token {self.token}"}
        )
        servers: dict[str, dict[str, Any]] = json.loads(answer.body)["servers"]
        return {name: model for name, model in servers.items() if model["started"]}


def _time(text: str) -> datetime:
    time: datetime = dateutil.parser.isoparse(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def main() -> None:
    """Look for idle servers until the hub ends this."""
    limits = IdleLimits.from_environment(os.environ)
    api_url, token = os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]
    culler = IdleCuller.instance(
        cull_arbiter_hook=Arbiter(limits=limits, api_url=api_url, token=token),
        cull_every=limits.interval,
        config_file="",
        url=api_url,
    )
    culler.initialize([])
    culler.start()


if __name__ == "__main__":
    main()
