"""The hub's service that stops idle servers: ``python -m spawner_config.lifecycle.culler``."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dateutil.parser
from jupyterhub_idle_culler import IdleCuller
from tornado.httpclient import AsyncHTTPClient
from tornado.log import app_log

from spawner_config.lifecycle.idle import IdleLimits, is_idle

if TYPE_CHECKING:
    from collections.abc import Callable

GAP_INTERVALS = 2
"""The number of report intervals by which the clock must jump before earlier activity reports are ignored."""


class ReportWindow:
    """The time since which the culler has been receiving activity reports without interruption.

    After the machine was suspended, or its clock was changed, the last reports of all servers seem old, and the culler
    might check the servers before they report again. The window therefore compares the wall clock with monotonic time,
    which such a jump does not affect. If they differ by more than ``tolerance``, the window restarts, so that every
    server has the full idle time to report.
    """

    def __init__(
        self,
        tolerance: timedelta,
        *,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the window at the current time."""
        self._tolerance = tolerance
        self._wall = wall
        self._monotonic = monotonic
        self._begin()

    def look(self) -> tuple[datetime, datetime]:
        """Return the current time, and the time since which the clock has not jumped."""
        now = self._wall()
        gap = now - self._since - timedelta(seconds=self._monotonic() - self._monotonic_since)
        if abs(gap) > self._tolerance:
            app_log.warning("The clock jumped by %+.0f s: idle timers restart.", gap.total_seconds())
            self._begin()
        return now, self._since

    def _begin(self) -> None:
        self._since, self._monotonic_since = self._wall(), self._monotonic()


@dataclass(frozen=True, kw_only=True)
class Arbiter:
    """Decides for each server whether the culler stops it."""

    limits: IdleLimits
    api_url: str
    token: str
    window: ReportWindow

    async def __call__(self, *, server: dict[str, Any], **_: Any) -> bool:
        """Return whether to stop ``server``, which is given in the format of the hub's REST API."""
        if not self._idle(server["name"], {server["name"]: server}):
            return False
        # Read the user's servers again. ``server`` may be some seconds old, and a notebook server counts as in use
        # while one of the user's workers is in use, but the culler passes only one server.
        return self._idle(server["name"], await self._servers_beside(server))

    def _idle(self, name: str, servers: dict[str, dict[str, Any]]) -> bool:
        uses = {each: _time(model["last_activity"] or model["started"]) for each, model in servers.items()}
        now, since = self.window.look()
        return is_idle(name, uses, self.limits, now=now, reports_since=since)

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
    """Check for idle servers until the hub ends this process."""
    limits = IdleLimits.from_environment(os.environ)
    api_url, token = os.environ["JUPYTERHUB_API_URL"], os.environ["JUPYTERHUB_API_TOKEN"]
    window = ReportWindow(GAP_INTERVALS * timedelta(seconds=limits.interval))
    culler = IdleCuller.instance(
        cull_arbiter_hook=Arbiter(limits=limits, api_url=api_url, token=token, window=window),
        cull_every=limits.interval,
        config_file="",
        url=api_url,
    )
    culler.initialize([])
    culler.start()


if __name__ == "__main__":
    main()
