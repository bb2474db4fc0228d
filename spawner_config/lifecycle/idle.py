"""Rules that define idle servers, and the configuration of the hub's service that stops them.

Servers report their own activity (`farandole.server.activity`). The activity that the proxy reports is ignored, because
an open page or a connected driver would keep a server alive forever.
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
from spawner_config.roles import is_notebook, is_worker
from spawner_config.settings import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

Minutes = Annotated[float, Field(ge=0, allow_inf_nan=False)]
WANTED = "a number of minutes, or 0 for never"
SERVICE = "idle-culler"
SCOPES = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
LONGEST_INTERVAL = 60
KEPT = ("PATH", "FARANDOLE_HUB_OF")
"""The environment variables that the service inherits from the hub. `hub.process` uses FARANDOLE_HUB_OF to find
processes that a killed hub has left."""


class IdleLimits(Variables):
    """How many minutes a server of each role may be idle before the hub stops it; 0 means forever."""

    worker_minutes: Minutes = Field(30.0, alias="FARANDOLE_IDLE_MINUTES", description=WANTED)
    server_minutes: Minutes = Field(120.0, alias="FARANDOLE_IDLE_SERVER_MINUTES", description=WANTED)
    endpoint_minutes: Minutes = Field(1440.0, alias="FARANDOLE_IDLE_ENDPOINT_MINUTES", description=WANTED)

    @property
    def environment(self) -> dict[str, str]:
        """The limits as environment variables."""
        return {variable: f"{minutes:g}" for variable, minutes in self.model_dump(by_alias=True).items()}

    @property
    def interval(self) -> int:
        """The seconds between two activity reports of a server, and between two checks for idle servers."""
        each = (self.worker_minutes, self.server_minutes, self.endpoint_minutes)
        shortest = min((minutes for minutes in each if minutes), default=math.inf)
        return round(min(max(shortest * 60 / 5, 1), LONGEST_INTERVAL))

    def limit(self, server: str) -> timedelta | None:
        """Return how long the server with this name may be idle; None means forever."""
        minutes = self.server_minutes
        if not is_notebook(server):
            minutes = self.worker_minutes if is_worker(server) else self.endpoint_minutes
        return timedelta(minutes=minutes) if minutes else None


def is_idle(
    server: str, uses: Mapping[str, datetime], limits: IdleLimits, *, now: datetime, reports_since: datetime
) -> bool:
    """Return whether a server has been idle for too long.

    - ``uses`` maps the user's running servers to the times at which they were last used.
    - While a worker is in use, the user's notebook servers count as in use too, because stopping the last notebook
      server would also stop the worker.
    - Idle time starts at ``reports_since`` at the earliest, because earlier reports may be missing if the hub was down
      or the clock jumped.
    """
    limit = limits.limit(server)
    if limit is None or server not in uses:
        return False
    ours = [use for name, use in uses.items() if name == server or (is_notebook(server) and is_worker(name))]
    return now - max(reports_since, *ours) >= limit


class QuietProxy(ConfigurableHTTPProxy):  # type: ignore[misc]
    """A ConfigurableHTTPProxy whose activity reports are ignored, because servers report their own activity."""

    async def get_all_routes(self) -> dict[str, Any]:
        """Return all routes without the times of their last activity."""
        routes: dict[str, Any] = await super().get_all_routes()
        for route in routes.values():
            route["data"].pop("last_activity", None)
        return routes


def configure_idle(c: Any, limits: IdleLimits) -> None:
    """Configure the hub to stop idle servers."""
    c.JupyterHub.proxy_class = QuietProxy
    c.Spawner.pre_spawn_hook = partial(tell_limits, limits)
    if not any((limits.worker_minutes, limits.server_minutes, limits.endpoint_minutes)):
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
    """Add the report interval and the idle limits to a server's environment (``c.Spawner.pre_spawn_hook``)."""
    spawner.environment |= {**limits.environment, "JUPYTERHUB_ACTIVITY_INTERVAL": str(limits.interval)}
