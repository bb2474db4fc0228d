"""The state of a service's task, read from the engine's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

SEARCHING = {"new", "allocated", "pending"}
"""The states of a task that has no node yet."""
ENDED = {"complete", "failed", "shutdown", "rejected", "orphaned", "remove"}
"""The states of a task whose container is no longer running."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task of a service; ``desired`` is the state that the swarm wants it to have.

    ``addresses`` maps the names of the task's networks to its addresses in them.
    """

    state: str
    desired: str
    reason: str
    node: str
    addresses: dict[str, str]

    @classmethod
    def of(cls, found: dict[str, Any]) -> Task:
        """Return a task, given its description ``found`` from the engine's list of tasks."""
        status = found["Status"]
        code = (status.get("ContainerStatus") or {}).get("ExitCode")
        attachments = found.get("NetworksAttachments") or []
        return cls(
            state=status["State"],
            desired=found.get("DesiredState", ""),
            reason=status.get("Err") or (f"exit code {code}" if code else ""),
            node=found.get("NodeID", ""),
            addresses={
                each["Network"]["Spec"]["Name"]: each["Addresses"][0].partition("/")[0]
                for each in attachments
                if each.get("Addresses")
            },
        )

    @property
    def runs(self) -> bool:
        """Whether the task's container is running and the swarm does not want to end it."""
        return self.state == "running" and not self.given_up

    @property
    def over(self) -> bool:
        """Whether the task has ended or was lost together with its node."""
        return self.state in ENDED or self.given_up

    @property
    def given_up(self) -> bool:
        """Whether the swarm has abandoned the task.

        If the node is down, ``state`` can still be the last state that the node reported.
        """
        return self.desired in {"shutdown", "remove"}

    @property
    def searching(self) -> bool:
        """Whether the task has no node yet; ``reason`` contains the swarm's reason, if it has reported one."""
        return self.state in SEARCHING and not self.given_up

    @property
    def end(self) -> str:
        """A description of how the task ended, for error messages and the hub's log."""
        return f"{self.state}: {self.reason}" if self.reason else self.state


def newest(found: Iterable[dict[str, Any]]) -> Task | None:
    """Return the newest of a service's tasks, or None if it has no task."""
    tasks = sorted(found, key=lambda each: str(each["CreatedAt"]))
    return Task.of(tasks[-1]) if tasks else None
