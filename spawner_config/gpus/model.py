"""A server's request for GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from spawner_config.roles import is_worker

Key: TypeAlias = tuple[str, str]
"""A server: its user's name and its own."""


@dataclass(frozen=True, kw_only=True)
class GpuRequest:
    """What a server asks for: ``count`` GPUs of a class (None: of any), with ``together`` workers in one start.

    Workers of a cluster that wait are served together: were each served alone, two clusters could hold half of what
    they need and wait for each other for ever.
    """

    user: str
    server: str
    count: int
    gpu_class: str | None = None
    together: int = 1

    @property
    def key(self) -> Key:
        """The server that asks."""
        return self.user, self.server

    @property
    def cluster(self) -> Key:
        """What is served together: the worker's cluster, or the server alone."""
        return _cluster(self.key)


def _cluster(key: Key) -> Key:
    user, server = key
    return (user, server.rpartition("-w")[0] + "-w") if is_worker(server) else key
