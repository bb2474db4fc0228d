"""Rules for idle servers, and the service of the hub that stops them.

Servers report their own activity (`farandole.server.activity`). The proxy's view of activity does not count: an open
page or an attached driver would keep a server alive forever.
"""

from __future__ import annotations

import math
import os
import sys
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from jupyterhub.proxy import ConfigurableHTTPProxy
from pydantic import Field

from spawner_config.models import Variables
from spawner_config.roles import is_worker
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

Minutes = Annotated[float, Field(ge=0, allow_inf_nan=False)]
WANTED = "a number of minutes, or 0 for never"
SERVICE = "idle-culler"
SCOPES = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
LONGEST_INTERVAL = 60
KEPT = ("PATH", "FARANDOLE_HUB_OF")
"""The hub's variables that the service inherits; `hub.process` finds processes of a killed hub by FARANDOLE_HUB_OF."""


class IdleLimits(Variables):
    """The minutes without use after which the hub stops a worker, or any other server; 0: never."""

    worker_minutes: Minutes = Field(30.0, alias="FARANDOLE_IDLE_MINUTES", description=WANTED)
    server_minutes: Minutes = Field(120.0, alias="FARANDOLE_IDLE_SERVER_MINUTES", description=WANTED)

    @property
    def environment(self) -> dict[str, str]:
        """The same limits as environment variables."""
        return {variable: f"{minutes:g}" for variable, minutes in self.model_dump(by_alias=True).items()}

    @property
    def interval(self) -> int:
        """The seconds between two reports of a server, and between two checks for idle servers."""
        shortest = min((minutes for minutes in (self.worker_minutes, self.server_minutes) if minutes), default=math.inf)
        return round(min(max(shortest * 60 / 5, 1), LONGEST_INTERVAL))

    def limit(self, server: str) -> timedelta | None:
        """Return how long a server of that name may be idle; None means forever."""
        minutes = self.worker_minutes if is_worker(server) else self.server_minutes
        return timedelta(minutes=minutes) if minutes else None


def is_idle(
    server: str, uses: Mapping[str, datetime], limits: IdleLimits, *, now: datetime, reports_since: datetime
) -> bool:
    """Return whether a server has been idle for too long.

    - ``uses`` has the time of the last use of each running server of the user.
    - A notebook server is in use while a worker of its user is in use, because the workers would stop with it.
    - Idle time counts from ``reports_since`` at the earliest. Reports from before that time may be missing, because the
      hub was down or the clock jumped.
    """
    limit = limits.limit(server)
    if limit is None or server not in uses:
        return False
    ours = [use for name, use in uses.items() if name == server or (not is_worker(server) and is_worker(name))]
    return now - max(reports_since, *ours) >= limit


class QuietProxy(ConfigurableHTTPProxy):  # type: ignore[misc]
    """The usual proxy, whose reports of activity are left out. The hub still gets the list of routes from the proxy."""

    async def get_all_routes(self) -> dict[str, Any]:
        """Return all routes."""
        routes: dict[str, Any] = await super().get_all_routes()
        for route in routes.values():
            route["data"].pop("last_activity", None)
        return routes


def configure_idle(c: Any, limits: IdleLimits) -> None:
    """Configure the hub to stop idle servers."""
    c.JupyterHub.proxy_class = QuietProxy
    c.Spawner.pre_spawn_hook = partial(tell_limits, limits)
    if not limits.worker_minutes and not limits.server_minutes:
        return
    kept = {key: os.environ[key] for key in KEPT if key in os.environ}
    service = {
        "name": SERVICE,
        "command": [sys.executable, "-m", "spawner_config.lifecycle.culler"],
        "environment": {**kept, **limits.environment, "PYTHONPATH": str(ROOT)},
    }
    c.JupyterHub.services = [*(c.JupyterHub.get("services") or []), service]
    role = {"name": SERVICE, "scopes": SCOPES, "services": [SERVICE]}
    c.JupyterHub.load_roles = [*(c.JupyterHub.get("load_roles") or []), role]


def tell_limits(limits: IdleLimits, spawner: Any) -> None:
    """Set the environment of a server before it starts: the report interval, and the idle limits for the driver."""
    spawner.environment |= {**limits.environment, "JUPYTERHUB_ACTIVITY_INTERVAL": str(limits.interval)}
