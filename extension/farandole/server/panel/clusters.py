"""Combines the states of the hub, the workers and the drivers into descriptions of the user's clusters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias, cast

from farandole.driver.control.mailbox import DriverStatus
from farandole.driver.data.status import DaskStatus
from farandole.driver.workers.source import WORKER_NAME
from farandole.driver.workers.worker import WorkerInfo, WorkerLook, WorkerOptions
from farandole.server.panel import wire

Server: TypeAlias = Mapping[str, Any]
"""A server model from the hub's API."""


@dataclass(kw_only=True)
class PendingAction:
    """An action that the panel is performing on a cluster, or the error of an action that has failed."""

    kind: str = ""
    """``start``, ``scale``, ``stop`` or ``run`` (for stopping a run), or empty after the action has failed."""
    options: WorkerOptions | None = None
    wanted: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerAnswer:
    """The last status received from a worker, and the time at which it was received."""

    status: WorkerLook
    time: float


@dataclass(kw_only=True)
class Snapshot:
    """The last known state of the hub, the workers and the drivers, and the panel's actions.

    ``progress`` contains the hub's last progress event for each worker that is starting.
    """

    servers: dict[str, Server] = field(default_factory=dict)
    progress: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[str, WorkerAnswer] = field(default_factory=dict)
    driver_statuses: Sequence[DriverStatus] = ()
    pending: dict[str, PendingAction] = field(default_factory=dict)
    ended_drivers: Sequence[tuple[float, DriverStatus]] = ()
    """Drivers that ended during a run, each with the time at which its end was detected. Their ranks may continue."""
    here: Mapping[str, Any] | None = None
    """The resource usage of this notebook server and its child processes, including the ranks of local clusters."""

    def record_drivers(self, statuses: Sequence[DriverStatus], now: float) -> None:
        """Store the statuses of the drivers, which were read at the time ``now``."""
        drivers = [status.driver for status in statuses]
        ended = [(now, status) for status in self.driver_statuses if status.runs and status.driver not in drivers]
        self.ended_drivers = [one for one in (*self.ended_drivers, *ended) if self._may_go_on(*one)]
        self.driver_statuses = statuses

    def _may_go_on(self, ended: float, status: DriverStatus) -> bool:
        """Return whether a worker of a driver that ended at the time ``ended`` has not reported its runs since then.

        Always False for a local cluster, because its ranks end with the driver.
        """
        if status.local:
            return False
        asked = [self.answers.get(name) for name in status.workers if name in self.servers]
        return any(answer is None or answer.time < ended for answer in asked)

    def members(self, cluster: str) -> list[str]:
        """Return the names of the cluster's workers on the hub, sorted by index."""
        matches = [match for name in self.servers if (match := WORKER_NAME.match(name))]
        return [match[0] for match in sorted(matches, key=lambda one: int(one["index"])) if match["cluster"] == cluster]

    def names(self) -> list[str]:
        """Return the names of all clusters that are on the hub, have a pending or failed action, or have a driver."""
        matches = [match for name in self.servers if (match := WORKER_NAME.match(name))]
        led = [status.cluster for status in self.driver_statuses if self.is_led_by(status)]
        return sorted({*(match["cluster"] for match in matches), *self.pending, *led})

    def is_led_by(self, status: DriverStatus) -> bool:
        """Return whether a driver's cluster still exists. A local cluster exists as long as its driver."""
        return bool(status.workers) and (status.local or any(name in self.servers for name in status.workers))

    def driver_status(self, cluster: str) -> DriverStatus | None:
        """Return the status of the cluster's driver, or of the newest one if there are several, or None."""
        return next(iter(self.driver_statuses_of(cluster)), None)

    def driver_statuses_of(self, cluster: str) -> list[DriverStatus]:
        """Return the statuses of all drivers of the cluster, newest driver first."""
        return [one for one in self.driver_statuses if one.cluster == cluster and self.is_led_by(one)]

    def active_runs(self, cluster: str | None = None) -> set[str]:
        """Return the ids of the active runs on one cluster, or on all clusters if no name is given.

        After a driver has ended, its runs count as active until its workers have reported which runs they execute.
        """
        members = self.answers if cluster is None else [name for name in self.members(cluster) if name in self.answers]
        ended = [status for at, status in self.ended_drivers if self._may_go_on(at, status)]
        statuses = [status for status in (*self.driver_statuses, *ended) if cluster in {None, status.cluster}]
        return {run for name in members for run in self.answers[name].status.runs} | {
            run for one in statuses for run in one.runs
        }


def clusters(snapshot: Snapshot, notebook: Callable[[str], str]) -> list[wire.Cluster]:
    """Return descriptions of all clusters. ``notebook`` converts a notebook's path to the path that Jupyter shows."""
    return [cluster(snapshot, name, notebook) for name in snapshot.names()]


def cluster(snapshot: Snapshot, name: str, notebook: Callable[[str], str]) -> wire.Cluster:
    """Return a description of one cluster; see `clusters` for the arguments."""
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
        "dask": None if status is None or status.dask is None else _progress(status.dask),
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
    if len(dead) == 1:
        return f"rank {dead[0]} is dead; the next cell starts it again"
    return f"ranks {', '.join(dead)} are dead; the next cell starts them again"


def _size(workers: Sequence[wire.Worker], status: DriverStatus | None) -> int | None:
    if status is not None and status.ranks:
        return len(status.ranks)
    slots = [worker["slots"] for worker in workers]
    return sum(slot or 0 for slot in slots) if slots and None not in slots else None


def _lead(status: DriverStatus, notebook: Callable[[str], str]) -> wire.Lead:
    host = str(status.driver.get("host", ""))
    return {"notebook": notebook(status.notebook), "kernel": status.kernel, "host": host, "busy": status.busy}


def _progress(dask: DaskStatus) -> wire.DaskProgress:
    return {"tasks": dask.tasks, "done": dask.done, "failed": dask.failed}


def _worker(snapshot: Snapshot, name: str, status: DriverStatus | None) -> wire.Worker:
    server, answer = snapshot.servers.get(name, {}), snapshot.answers.get(name)
    event = snapshot.progress.get(name, {}) if worker_state(server) == "starting" else {}
    info = answer.status.info if answer is not None else None
    dask = status.dask.workers.get(name) if status is not None and status.dask is not None else None
    has_tasks = dask is not None and dask.busy
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
        "busy": (has_tasks or info.idle_seconds is None) if info else None,
        "idle_until": _idle_until(info, answer.time) if info and answer and not has_tasks else None,
        "url": server.get("url"),
        "usage": used,  # type: ignore[typeddict-item] # a test compares the two types
        "dask": None if dask is None else cast("wire.DaskWorker", asdict(dask)),
    }


def worker_state(server: Server) -> wire.WorkerState:
    """Return a server's state. An empty server model stands for a local cluster, which does not exist on the hub."""
    if server.get("pending") == "stop" or server.get("stopped"):
        return "stopping"
    return "ready" if server.get("ready") or not server else "starting"


def _ranks(status: DriverStatus | None, name: str) -> list[wire.Rank]:
    ranks = status.ranks if status is not None else ()
    return [{"rank": rank, "alive": alive} for worker, rank, alive in ranks if worker == name]


def _idle_until(info: WorkerInfo, answered: float) -> float | None:
    if info.idle_seconds is None or not info.idle_minutes:
        return None
    # Rounded to seconds, so that the value does not change with every poll.
    return float(round(answered + 60 * info.idle_minutes - info.idle_seconds))


def options_of(snapshot: Snapshot, name: str) -> WorkerOptions:
    """Return the options with which the workers of a cluster were started, according to the hub."""
    asked = snapshot.servers[snapshot.members(name)[0]].get("user_options", {})
    known = {key: asked[key] for key in ("profile", "ranks", "backend", "wait") if asked.get(key) is not None}
    return WorkerOptions(cluster=name, **known)
