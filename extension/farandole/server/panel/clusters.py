"""All clusters of the user, put together from what the hub, the workers and the drivers' desks say: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from farandole.driver.control.mailbox import DriverStatus
from farandole.driver.workers.source import WORKER_NAME
from farandole.driver.workers.worker import WorkerInfo, WorkerLook, WorkerOptions
from farandole.server.panel import wire

Server: TypeAlias = Mapping[str, Any]
"""A server as the hub's API describes it."""


@dataclass(kw_only=True)
class Work:
    """What the panel itself is doing to a cluster, or why it could not."""

    kind: str = ""
    """``start``, ``scale``, ``stop``, or empty when it is over."""
    options: WorkerOptions | None = None
    wanted: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a worker said of itself, and when."""

    look: WorkerLook
    time: float


@dataclass(kw_only=True)
class Sources:
    """All that is known; ``progress`` holds the hub's last event of each worker that starts."""

    servers: dict[str, Server] = field(default_factory=dict)
    progress: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)
    driver_statuses: Sequence[DriverStatus] = ()
    works: dict[str, Work] = field(default_factory=dict)
    here: Mapping[str, Any] | None = None
    """What this server and all below it use: kernels, and the ranks of local clusters."""

    def members(self, cluster: str) -> list[str]:
        """Return the names of a cluster's workers that the hub knows, in their order."""
        matches = [match for name in self.servers if (match := WORKER_NAME.match(name))]
        return [match[0] for match in sorted(matches, key=lambda one: int(one["index"])) if match["cluster"] == cluster]

    def names(self) -> list[str]:
        """Return the names of all clusters, also of those that are only tried or told of."""
        matches = [match for name in self.servers if (match := WORKER_NAME.match(name))]
        led = [sign.cluster for sign in self.driver_statuses if self.is_led_by(sign)]
        return sorted({*(match["cluster"] for match in matches), *self.works, *led})

    def is_led_by(self, sign: DriverStatus) -> bool:
        """Say whether a desk's cluster is there: local ones are while their driver is."""
        return bool(sign.workers) and (sign.local or any(name in self.servers for name in sign.workers))

    def sign(self, cluster: str) -> DriverStatus | None:
        """Return what the driver says that leads a cluster; of several the one that came last."""
        return next(iter(self.leads(cluster)), None)

    def leads(self, cluster: str) -> list[DriverStatus]:
        """Return what all drivers say that lead a cluster."""
        return [one for one in self.driver_statuses if one.cluster == cluster and self.is_led_by(one)]

    def going(self, cluster: str | None = None) -> set[str]:
        """Return the ids of the runs that go on, of one cluster or of all."""
        members = self.looks if cluster is None else [name for name in self.members(cluster) if name in self.looks]
        driver_statuses = [sign for sign in self.driver_statuses if cluster in {None, sign.cluster}]
        return {run for name in members for run in self.looks[name].look.runs} | {
            run for one in driver_statuses for run in one.runs
        }


def clusters(sources: Sources, notebook: Callable[[str], str]) -> list[wire.Cluster]:
    """Return all clusters; ``notebook`` names the path of a notebook as Jupyter shows it."""
    return [cluster(sources, name, notebook) for name in sources.names()]


def cluster(sources: Sources, name: str, notebook: Callable[[str], str]) -> wire.Cluster:
    """Return one cluster."""
    sign, work = sources.sign(name), sources.works.get(name, Work())
    members = list(sign.workers) if sign is not None and sign.local else sources.members(name)
    workers = [_worker(sources, member, sign) for member in members]
    options = sources.servers[members[0]].get("user_options", {}) if members and members[0] in sources.servers else {}
    asked = work.options or WorkerOptions(cluster=name)
    return {
        "name": name,
        "state": _state(workers, work, led=bool(sign and sign.ranks)),
        "error": work.error or (sign.error if sign else None),
        "notice": _notice(sign, work),
        "local": sign is not None and sign.local,
        "profile": next((one["profile"] for one in workers if one["profile"]), asked.profile),
        "backend": sign.backend if sign else options.get("backend") or asked.backend,
        "size": _size(workers, sign),
        "wanted": work.wanted or (sign.wanted if sign else None),
        "workers": workers,
        "lead": None if sign is None else _lead(sign, notebook),
        "runs": sorted(sources.going(name)),
    }


def _state(workers: Sequence[wire.Worker], work: Work, *, led: bool) -> wire.ClusterState:
    states = {worker["state"] for worker in workers}
    if work.kind == "stop" or states == {"stopping"}:
        return "stopping"
    if work.kind == "start" or ("starting" in states and not (led and "ready" in states)):
        return "starting"
    return "ready" if workers else "failed"


def _notice(sign: DriverStatus | None, work: Work) -> str | None:
    if sign is None:
        return None
    dead = [str(rank) for _, rank, alive in sign.ranks if not alive]
    if (sign.wanted or work.wanted) and sign.busy:
        return "the notebook that leads it takes it up when its cell has ended"
    if not dead:
        return None
    return f"rank{'s' if len(dead) > 1 else ''} {', '.join(dead)} dead; the next cell starts what is lost anew"


def _size(workers: Sequence[wire.Worker], sign: DriverStatus | None) -> int | None:
    if sign is not None and sign.ranks:
        return len(sign.ranks)
    slots = [worker["slots"] for worker in workers]
    return sum(slot or 0 for slot in slots) if slots and None not in slots else None


def _lead(sign: DriverStatus, notebook: Callable[[str], str]) -> wire.Lead:
    host = str(sign.driver.get("host", ""))
    return {"notebook": notebook(sign.notebook), "kernel": sign.kernel, "host": host, "busy": sign.busy}


def _worker(sources: Sources, name: str, sign: DriverStatus | None) -> wire.Worker:
    server, seen = sources.servers.get(name, {}), sources.looks.get(name)
    event = sources.progress.get(name, {}) if worker_state(server) == "starting" else {}
    info = seen.look.info if seen is not None else None
    used = seen.look.usage if seen is not None else sources.here if sign is not None and sign.local else None
    return {
        "name": name,
        "state": worker_state(server),
        "percent": event.get("progress"),
        "message": event.get("message"),
        "queue": event.get("queue"),
        "profile": (info.profile if info else "") or server.get("user_options", {}).get("profile"),
        "slots": info.ranks if info else None,
        "ranks": _ranks(sign, name),
        "host": info.host if info else None,
        "busy": info.idle_seconds is None if info else None,
        "idle_until": _idle_until(info, seen.time) if info and seen else None,
        "url": server.get("url"),
        "usage": used,  # type: ignore[typeddict-item] # a test holds the two together
    }


def worker_state(server: Server) -> wire.WorkerState:
    """Return how a server is; an empty one is that of a local cluster, which the hub does not know."""
    if server.get("pending") == "stop" or server.get("stopped"):
        return "stopping"
    return "ready" if server.get("ready") or not server else "starting"


def _ranks(sign: DriverStatus | None, name: str) -> list[wire.Rank]:
    if sign is None:
        return []
    return [{"rank": rank, "alive": alive} for worker, rank, alive in sign.ranks if worker == name]


def _idle_until(info: WorkerInfo, seen: float) -> float | None:
    if info.idle_seconds is None or not info.idle_minutes:
        return None
    # To whole seconds: it must not seem to change with each look.
    return float(round(seen + 60 * info.idle_minutes - info.idle_seconds))


def options_of(sources: Sources, name: str) -> WorkerOptions:
    """Return what the workers of a cluster that nobody leads were started with."""
    asked = sources.servers[sources.members(name)[0]].get("user_options", {})
    known = {key: asked[key] for key in ("profile", "ranks", "backend", "wait") if asked.get(key) is not None}
    return WorkerOptions(cluster=name, **known)
