"""Combines the states of the hub, the workers and the drivers into the user's clusters: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from farandole.driver.control.mailbox import DriverStatus
from farandole.driver.workers.source import WORKER_NAME
from farandole.driver.workers.worker import WorkerInfo, WorkerLook, WorkerOptions
from farandole.server.panel import wire

Server: TypeAlias = Mapping[str, Any]
"""A server as in the answers of the hub's API."""


@dataclass(kw_only=True)
class PendingAction:
    """What the panel is currently doing to a cluster, or why that has failed."""

    kind: str = ""
    """``start``, ``scale``, ``stop`` or ``run`` (stopping a run); empty if it is over."""
    options: WorkerOptions | None = None
    wanted: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerAnswer:
    """A worker's last status, and when it was received."""

    status: WorkerLook
    time: float


@dataclass(kw_only=True)
class Snapshot:
    """Everything that is known; ``progress`` holds the hub's last event for each starting worker."""

    servers: dict[str, Server] = field(default_factory=dict)
    progress: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[str, WorkerAnswer] = field(default_factory=dict)
    driver_statuses: Sequence[DriverStatus] = ()
    pending: dict[str, PendingAction] = field(default_factory=dict)
    here: Mapping[str, Any] | None = None
    """Usage of this notebook server with its child processes: kernels, and the ranks of local clusters."""

    def members(self, cluster: str) -> list[str]:
        """Return the names of a cluster's workers that the hub knows, sorted by index."""
        matches = [match for name in self.servers if (match := WORKER_NAME.match(name))]
        return [match[0] for match in sorted(matches, key=lambda one: int(one["index"])) if match["cluster"] == cluster]

    def names(self) -> list[str]:
        """Return the names of all clusters, including those that are only in progress or known from drivers."""
        matches = [match for name in self.servers if (match := WORKER_NAME.match(name))]
        led = [status.cluster for status in self.driver_statuses if self.is_led_by(status)]
        return sorted({*(match["cluster"] for match in matches), *self.pending, *led})

    def is_led_by(self, status: DriverStatus) -> bool:
        """Return whether a driver's cluster exists; a local cluster exists as long as its driver."""
        return bool(status.workers) and (status.local or any(name in self.servers for name in status.workers))

    def driver_status(self, cluster: str) -> DriverStatus | None:
        """Return the status of a cluster's driver; if there are several, the newest one."""
        return next(iter(self.driver_statuses_of(cluster)), None)

    def driver_statuses_of(self, cluster: str) -> list[DriverStatus]:
        """Return the statuses of all drivers of a cluster."""
        return [one for one in self.driver_statuses if one.cluster == cluster and self.is_led_by(one)]

    def active_runs(self, cluster: str | None = None) -> set[str]:
        """Return the ids of the active runs, of one cluster or of all."""
        members = self.answers if cluster is None else [name for name in self.members(cluster) if name in self.answers]
        driver_statuses = [status for status in self.driver_statuses if cluster in {None, status.cluster}]
        return {run for name in members for run in self.answers[name].status.runs} | {
            run for one in driver_statuses for run in one.runs
        }


def clusters(snapshot: Snapshot, notebook: Callable[[str], str]) -> list[wire.Cluster]:
    """Return all clusters; ``notebook`` returns a notebook's path as Jupyter shows it."""
    return [cluster(snapshot, name, notebook) for name in snapshot.names()]


def cluster(snapshot: Snapshot, name: str, notebook: Callable[[str], str]) -> wire.Cluster:
    """Return one cluster."""
    status, action = snapshot.driver_status(name), snapshot.pending.get(name, PendingAction())
    members = list(status.workers) if status is not None and status.local else snapshot.members(name)
    workers = [_worker(snapshot, member, status) for member in members]
    options = snapshot.servers[members[0]].get("user_options", {}) if members and members[0] in snapshot.servers else {}
    asked = action.options or WorkerOptions(cluster=name)
    return {
        "name": name,
        "state": _state(workers, action, led=bool(status and status.ranks)),
        "error": action.error or (status.error if status else None),
        "notice": _notice(status, action),
        "local": status is not None and status.local,
        "profile": next((one["profile"] for one in workers if one["profile"]), asked.profile),
        "backend": status.backend if status else options.get("backend") or asked.backend,
        "size": _size(workers, status),
        "wanted": action.wanted or (status.wanted if status else None),
        "workers": workers,
        "lead": None if status is None else _lead(status, notebook),
        "runs": sorted(snapshot.active_runs(name)),
    }


def _state(workers: Sequence[wire.Worker], action: PendingAction, *, led: bool) -> wire.ClusterState:
    states = {worker["state"] for worker in workers}
    if action.kind == "stop" or states == {"stopping"}:
        return "stopping"
    if action.kind == "start" or ("starting" in states and not (led and "ready" in states)):
        return "starting"
    return "ready" if workers else "failed"


def _notice(status: DriverStatus | None, action: PendingAction) -> str | None:
    if status is None:
        return None
    dead = [str(rank) for _, rank, alive in status.ranks if not alive]
    if (status.wanted or action.wanted) and status.busy:
        return "the notebook that leads it will follow when its cell has ended"
    if not dead:
        return None
    return f"rank{'s' if len(dead) > 1 else ''} {', '.join(dead)} dead; the next cell starts the lost ranks again"


def _size(workers: Sequence[wire.Worker], status: DriverStatus | None) -> int | None:
    if status is not None and status.ranks:
        return len(status.ranks)
    slots = [worker["slots"] for worker in workers]
    return sum(slot or 0 for slot in slots) if slots and None not in slots else None


def _lead(status: DriverStatus, notebook: Callable[[str], str]) -> wire.Lead:
    host = str(status.driver.get("host", ""))
    return {"notebook": notebook(status.notebook), "kernel": status.kernel, "host": host, "busy": status.busy}


def _worker(snapshot: Snapshot, name: str, status: DriverStatus | None) -> wire.Worker:
    server, answer = snapshot.servers.get(name, {}), snapshot.answers.get(name)
    event = snapshot.progress.get(name, {}) if worker_state(server) == "starting" else {}
    info = answer.status.info if answer is not None else None
    used = answer.status.usage if answer is not None else snapshot.here if status is not None and status.local else None
    return {
        "name": name,
        "state": worker_state(server),
        "percent": event.get("progress"),
        "message": event.get("message"),
        "queue": event.get("queue"),
        "profile": (info.profile if info else "") or server.get("user_options", {}).get("profile"),
        "slots": info.ranks if info else None,
        "ranks": _ranks(status, name),
        "host": info.host if info else None,
        "busy": info.idle_seconds is None if info else None,
        "idle_until": _idle_until(info, answer.time) if info and answer else None,
        "url": server.get("url"),
        "usage": used,  # type: ignore[typeddict-item] # a test compares the two types
    }


def worker_state(server: Server) -> wire.WorkerState:
    """Return a server's state. An empty server belongs to a local cluster, which the hub does not know."""
    if server.get("pending") == "stop" or server.get("stopped"):
        return "stopping"
    return "ready" if server.get("ready") or not server else "starting"


def _ranks(status: DriverStatus | None, name: str) -> list[wire.Rank]:
    ranks = status.ranks if status is not None else ()
    return [{"rank": rank, "alive": alive} for worker, rank, alive in ranks if worker == name]


def _idle_until(info: WorkerInfo, answered: float) -> float | None:
    if info.idle_seconds is None or not info.idle_minutes:
        return None
    # Rounded to seconds, so that the value stays the same between two polls.
    return float(round(answered + 60 * info.idle_minutes - info.idle_seconds))


def options_of(snapshot: Snapshot, name: str) -> WorkerOptions:
    """Return the options that the workers of a cluster without a driver were started with."""
    asked = snapshot.servers[snapshot.members(name)[0]].get("user_options", {})
    known = {key: asked[key] for key in ("profile", "ranks", "backend", "wait") if asked.get(key) is not None}
    return WorkerOptions(cluster=name, **known)
