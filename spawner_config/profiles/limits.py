"""Limits on the number of servers and ranks of a user."""

from __future__ import annotations

from pydantic import Field

from spawner_config.models import Table

AT_LEAST_1 = "a whole number of at least 1"


class LimitError(ValueError):
    """Raised when a user requests more servers or ranks than the hub allows."""


class Limits(Table):
    """The limits that a hub sets for each user."""

    workers_per_user: int = Field(16, ge=1, description=AT_LEAST_1)
    ranks_per_worker: int = Field(8, ge=1, description=AT_LEAST_1)
    notebooks_per_user: int = Field(3, ge=1, description=AT_LEAST_1)
    endpoints_per_user: int = Field(4, ge=0, description="a whole number")

    @property
    def servers_per_user(self) -> int:
        """The number of servers of all roles that a user may have."""
        return self.workers_per_user + self.notebooks_per_user + self.endpoints_per_user

    def check_workers(self, others: int) -> None:
        """Raise `LimitError` if a user who has ``others`` workers, existing or requested, may not start another."""
        if others >= self.workers_per_user:
            raise LimitError(
                f"That makes {others + 1} workers and this hub allows {self.workers_per_user} for each user. "
                "Stop a cluster (%cluster list, %cluster stop) or start fewer workers."
            )

    def check_notebooks(self, others: int) -> None:
        """Raise `LimitError` if a user with ``others`` notebook servers may not have another one."""
        if others >= self.notebooks_per_user:
            raise LimitError(
                f"You have {others} notebook servers and this hub allows {self.notebooks_per_user} for each user. "
                "Stop one at /hub/home first."
            )

    def check_endpoints(self, others: int) -> None:
        """Raise `LimitError` if a user with ``others`` endpoints may not have another one."""
        if others >= self.endpoints_per_user:
            raise LimitError(
                f"You have {others} endpoints and this hub allows {self.endpoints_per_user} for each user. Stop one "
                "with `%serve stop NAME` first; `%serve list` shows them."
            )

    def check_ranks(self, ranks: object) -> int:
        """Return ``ranks`` if it is an allowed number of ranks for a worker; raises `LimitError`."""
        if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= self.ranks_per_worker:
            raise LimitError(
                f"{ranks!r} ranks on one worker are not possible: this hub allows 1 to {self.ranks_per_worker}. "
                "Ask for fewer ranks on each worker and for more workers."
            )
        return ranks
