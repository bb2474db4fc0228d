"""The service's metrics in the format of Prometheus.

The labels are bounded: kinds, states, classes of GPUs and names of profiles are few, and only users with servers have
series of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from hub.services.operators.usage import User


class UsageCollector(Collector):
    """Collects the metrics of one moment."""

    def __init__(
        self, users: Sequence[User], gpus: Mapping[str, Mapping[str, Any]], limits: Mapping[str, int], *, total: int
    ) -> None:
        """Store who uses what. ``users`` are at least those with a server, and ``total`` counts all users."""
        self._total = total
        self._active = [user for user in users if user.servers]
        self._gpus = gpus
        self._limits = limits

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield all metrics."""
        yield from self._counts()
        yield from self._of_gpus()
        yield from self._memory()
        yield from self._of_users()

    def _counts(self) -> Iterator[GaugeMetricFamily]:
        servers = Counter(
            (server.kind, server.profile, server.state) for user in self._active for server in user.servers
        )
        yield _gauge("servers", "Servers that are not stopped.", ("kind", "profile", "state"), servers)
        yield _gauge("users", "Users that the hub knows.", (), {(): self._total})
        yield _gauge("users_active", "Users with a server that is not stopped.", (), {(): len(self._active)})
        ranks = sum(user.ranks for user in self._active)
        yield _gauge("ranks", "Ranks for which the workers are made.", (), {(): ranks})
        limits = {(name,): limit for name, limit in self._limits.items()}
        yield _gauge("limit", "The limits of profiles.toml for each user.", ("limit",), limits)

    def _of_gpus(self) -> Iterator[GaugeMetricFamily]:
        states = {}
        for name, gpus in self._gpus.items():
            states[name, "free"] = gpus["free"]
            states[name, "held"] = gpus["total"] - gpus["free"]
        yield _gauge("gpus", "GPUs that the hub counts.", ("class", "state"), states)
        waiting = {(name,): gpus["waiting"] for name, gpus in self._gpus.items()}
        yield _gauge("gpu_queue", "Servers that wait for GPUs.", ("class",), waiting)

    def _memory(self) -> Iterator[GaugeMetricFamily]:
        limit: Counter[tuple[str]] = Counter()
        used: Counter[tuple[str]] = Counter()
        for server in (server for user in self._active for server in user.servers):
            limit[server.kind,] += server.memory_limit or 0
            if server.memory_used is not None:
                used[server.kind,] += server.memory_used
        yield _gauge("memory_limit_bytes", "The sum of the memory limits of servers.", ("kind",), limit)
        yield _gauge("memory_used_bytes", "The memory of servers, where it is measured.", ("kind",), used)

    def _of_users(self) -> Iterator[GaugeMetricFamily]:
        idle = {(user.name,): min(server.idle for server in user.servers) for user in self._active}
        yield _gauge("server_idle_seconds", "Seconds since the last activity of a user's servers.", ("user",), idle)
        gpus = {(user.name,): user.gpus for user in self._active}
        yield _gauge("user_gpus", "GPUs of a user's servers.", ("user",), gpus)
        homes = {(user.name,): user.home for user in self._active if user.home is not None}
        yield _gauge("home_bytes", "Disk use of a user's home, where it is measured.", ("user",), homes)


def _gauge(
    name: str, description: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"farandole_{name}", description, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def exposition(collector: Collector) -> bytes:
    """Return the metrics as text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)
