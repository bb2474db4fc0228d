"""The settings of users' snapshots, which docs/how-to/snapshots-server.md explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from spawner_config.models import MEMORY, MEMORY_EXAMPLE, Variables, Whole
from spawner_config.operators.site import memory_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "FARANDOLE_SNAPSHOTS"
SERVICE = "snapshots"
MINUTES = "FARANDOLE_SNAPSHOTS_MINUTES"
PORT = 8083
"""The service's port in the hub's container or pod."""
ACCESS = f"access:services!service={SERVICE}"
"""The scope of tokens with which a user's programs reach the service."""


Minutes = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SnapshotSettings(Variables):
    """Whether users have snapshots, how often they are taken, how much disk space they use, and how long they stay."""

    snapshots: Literal["on", "off"] = Field("on", description="'on' or 'off'")
    snapshots_minutes: Minutes | Literal["off"] = Field(
        60.0, description="a number of minutes greater than 0, or 'off'"
    )
    snapshots_bytes: str = Field("10G", pattern=MEMORY, description=MEMORY_EXAMPLE)
    snapshots_hours: Whole = Field(24, ge=0, description="a number of hours")
    snapshots_days: Whole = Field(30, ge=0, description="a number of days")
    snapshots_message_days: Whole = Field(365, ge=0, description="a number of days")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of notebook servers, which take the automatic snapshots."""
        return {} if self.snapshots_minutes == "off" else {MINUTES: f"{self.snapshots_minutes:g}"}

    @property
    def limit(self) -> int:
        """The limit on the disk space of a user's snapshots, in bytes."""
        return memory_bytes(self.snapshots_bytes)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return those environment variables that are settings of snapshots."""
    return {key: value for key, value in environ.items() if key.startswith(PREFIX)}
