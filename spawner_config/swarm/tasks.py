"""The state of a service's task, from the engine's answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

SEARCHING = {"new", "allocated", "pending"}
"""States of a task without a node."""
ENDED = {"complete", "failed", "shutdown", "rejected", "orphaned", "remove"}
"""States of a task without a running container."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: its ``state``, the state that the swarm wants, its node, and its address in each of its networks."""

    state: str
    desired: str
    reason: str
    node: str
    addresses: dict[str, str]

    @classmethod
    def of(cls, found: dict[str, Any]) -> Task:
        """Return the task that an engine's answer describes."""
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
        """Whether the task's container is running and the swarm wants it to continue."""
        return self.state == "running" and not self.given_up

    @property
    def over(self) -> bool:
        """Whether the task has ended, or was lost with its node."""
        return self.state in ENDED or self.given_up

    @property
    def given_up(self) -> bool:
        """Whether the swarm treats the task as ended. Its node may be down and may have reported another state last."""
        return self.desired in {"shutdown", "remove"}

    @property
    def searching(self) -> bool:
        """Whether the task has no node yet; ``reason`` says why, once the swarm has given a reason."""
        return self.state in SEARCHING and not self.given_up

    @property
    def end(self) -> str:
        """How the task ended, for the hub's log."""
        return f"{self.state}: {self.reason}" if self.reason else self.state


def newest(found: Iterable[dict[str, Any]]) -> Task | None:
    """Return the newest of a service's tasks; None if it has none."""
    tasks = sorted(found, key=lambda each: str(each["CreatedAt"]))
    return Task.of(tasks[-1]) if tasks else None
