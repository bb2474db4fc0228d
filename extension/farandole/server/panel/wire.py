"""Types of the JSON messages between the notebook server and the panel's page.

All keys are always present; null means unknown or not applicable. Times are in seconds since the epoch, sizes in bytes.
``tests/wire`` holds an example of each type, for the tests of both languages.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

WorkerState: TypeAlias = Literal["starting", "ready", "stopping"]
ClusterState: TypeAlias = Literal["starting", "ready", "stopping", "failed"]
RunStatus: TypeAlias = Literal["running", "finished", "failed", "interrupted", "lost"]
RankState: TypeAlias = Literal["running", "done", "failed", "stopped", "dead"]
ProblemCode: TypeAlias = Literal[
    "invalid", "unknown", "no_hub", "refused", "quota", "exists", "runs_go_on", "unreachable", "failed"
]
Numbers: TypeAlias = list[float | None]


class GpuUsage(TypedDict):
    """A GPU that a worker sees, with the values of ``nvidia-smi``."""

    index: int
    percent: float | None
    memory: int | None
    memory_total: int | None


class Usage(TypedDict):
    """Resource usage of a worker and its ranks.

    ``cpu`` is in percent of one core, and ``cpus`` is the number of cores available. ``received`` and ``sent`` are
    bytes per second on the network of the container or machine. Rates are null until there are two samples.
    """

    time: float
    cpu: float | None
    cpus: float
    memory: int
    memory_limit: int | None
    gpus: list[GpuUsage]
    received: float | None
    sent: float | None


class Rank(TypedDict):
    """A rank, as its cluster's driver knows it."""

    rank: int
    alive: bool


class Worker(TypedDict):
    """A worker of a cluster.

    While it starts, ``percent`` and ``message`` are from the hub's last event, and ``queue`` is its place in the queue
    for GPUs. ``slots`` is the number of ranks it can hold; ``ranks`` is empty if the cluster has no driver. ``busy``:
    a rank computes. The hub stops an unused worker at ``idle_until``. ``url`` is a path on the hub.
    """

    name: str
    state: WorkerState
    percent: float | None
    message: str | None
    queue: int | None
    profile: str | None
    slots: int | None
    ranks: list[Rank]
    host: str | None
    busy: bool | None
    idle_until: float | None
    url: str | None
    usage: Usage | None


class Lead(TypedDict):
    """The kernel that leads a cluster; ``notebook`` is its path, empty if unknown."""

    notebook: str
    kernel: str
    host: str
    busy: bool


class Cluster(TypedDict):
    """A cluster. A failed start remains, with the reason in ``error``, until the page deletes it.

    ``wanted`` is the requested number of workers while it is not reached; ``notice`` says what has to happen first.
    ``local``: the cluster has no hub, and ends with the kernel that leads it. ``size`` is its number of ranks; ``runs``
    are the ids of its active runs.
    """

    name: str
    state: ClusterState
    error: str | None
    notice: str | None
    local: bool
    profile: str | None
    backend: str | None
    size: int | None
    wanted: int | None
    workers: list[Worker]
    lead: Lead | None
    runs: list[str]


class Hub(TypedDict):
    """The hub's latest state; ``error`` says why it cannot be reached."""

    user: str | None
    error: str | None


class Profile(TypedDict):
    """A size of server that the admin offers; ``gpus_free`` and ``gpus_total`` count the GPUs of its class."""

    name: str
    description: str
    ranks: int
    cpus: float | None
    memory: str | None
    gpus: int
    gpu_class: str | None
    gpus_free: int | None
    gpus_total: int | None


class Holder(TypedDict):
    """The number of GPUs of a class that a user holds."""

    user: str
    count: int


class GpuClass(TypedDict):
    """The hub's GPUs of one class; ``waiting`` is the number of servers in the queue for them."""

    name: str
    total: int
    free: int
    waiting: int
    held: list[Holder]


class Quota(TypedDict):
    """The user's limits; null if the hub has none."""

    workers: int
    workers_max: int | None
    ranks_per_worker_max: int | None


class Resources(TypedDict):
    """The profiles, GPUs, limits and backends that clusters can use."""

    profiles: list[Profile]
    gpus: list[GpuClass]
    quota: Quota
    backends: list[str]


class RunBasics(TypedDict):
    """Fields of a run that lists and views share."""

    id: str
    name: str
    status: RunStatus
    error: str | None
    backend: str
    size: int


class RunSummary(RunBasics):
    """A run in the list.

    ``goes_on``: ranks compute for it, possibly without a driver (its status is then lost until a notebook attaches).
    ``notebook``, ``kernel`` and ``cell`` say where it was started; empty if that was not recorded.
    """

    goes_on: bool
    started: float
    ended: float | None
    seconds: float
    cluster: str
    notebook: str
    kernel: str
    cell: str
    resumed_from: str | None


class RankLine(TypedDict):
    """The line of one rank in a series."""

    x: Numbers
    mean: Numbers


class Series(TypedDict):
    """A series of at most 300 points (600 while it grows): the mean over the ranks, between ``low`` and ``high``.

    ``bad`` counts NaN and infinite values, and ``bad_x`` says where they are. ``ranks`` is null unless requested.
    """

    name: str
    x_label: str
    bad: int
    bad_x: Numbers
    last: float | None
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    ranks: dict[str, RankLine] | None


class Bar(TypedDict):
    """Progress of a loop."""

    name: str
    done: float | None
    total: float | None
    seconds_left: float | None


class RankRow(TypedDict):
    """A rank of a run: usage of its process, speed, and its last lines of output. ``cpu`` is as in `Usage`."""

    rank: int
    worker: str
    state: RankState
    cpu: float | None
    memory: int | None
    gpu: float | None
    gpu_memory: int | None
    gpu_memory_total: int | None
    samples_per_second: float | None
    step_seconds: float | None
    slowest: bool
    log: list[str]


class RunView(RunBasics):
    """The view of a run, which the dashboard in the notebook shows as well. ``ended``: no updates will follow."""

    ended: bool
    notices: list[str]
    elapsed: float
    progress: list[Bar]
    samples_per_second: float | None
    series: list[Series]
    ranks: list[RankRow]


class RunDetail(TypedDict):
    """``GET runs/ID``. ``sampled``: no driver has written a view, and the chart was made from samples of the files."""

    summary: RunSummary
    view: RunView
    sampled: bool
    code: str
    options: dict[str, Any]
    versions: dict[str, str]
    results: dict[str, Any]
    folder: str


class RunSeries(TypedDict):
    """``GET runs/ID/series``."""

    id: str
    sampled: bool
    series: list[Series]


class RunPage(TypedDict):
    """``GET runs``: a page of the runs that match a filter, newest first, and the total number of matching runs."""

    runs: list[RunSummary]
    offset: int
    total: int


class LogRequest(TypedDict):
    """A request for the log of a rank or a worker. In a subscription, a negative ``offset`` counts from the end."""

    run: str | None
    rank: int | None
    worker: str | None
    offset: int


class LogPart(LogRequest):
    """The bytes from ``offset`` to ``next`` of a log with ``size`` bytes. The first bytes may no longer be kept."""

    next: int
    size: int
    text: str


class State(TypedDict):
    """``GET state``, and the first messages of the stream. ``hub`` is null without a hub."""

    hub: Hub | None
    resources: Resources
    clusters: list[Cluster]
    runs: RunPage


class Problem(TypedDict):
    """The reason for refusing a request; ``message`` is for the user. ``runs``: active runs that would be stopped."""

    code: ProblemCode
    message: str
    runs: list[str]


class StartCluster(TypedDict):
    """``POST clusters``; null selects the hub's default."""

    name: str
    workers: int
    profile: str | None
    ranks: int | None
    backend: str | None
    wait: bool


class ScaleCluster(TypedDict):
    """``PATCH clusters/NAME``."""

    workers: int


class Watch(TypedDict):
    """A page's other subscriptions, which replace earlier ones. While the panel is ``seen``, polling is frequent."""

    kind: Literal["watch"]
    seen: bool
    runs: list[str]
    by_rank: bool
    logs: list[LogRequest]


class ClustersMessage(TypedDict):
    """The current state of all clusters."""

    kind: Literal["clusters"]
    hub: Hub | None
    clusters: list[Cluster]


class ResourcesMessage(TypedDict):
    """The resources that clusters can use now."""

    kind: Literal["resources"]
    resources: Resources


class RunsMessage(TypedDict):
    """The newest runs, with all active runs, and the total number of runs."""

    kind: Literal["runs"]
    runs: list[RunSummary]
    total: int


class RunMessage(TypedDict):
    """The current state of a run that the page subscribes to."""

    kind: Literal["run"]
    id: str
    summary: RunSummary
    view: RunView
    sampled: bool


class LogMessage(TypedDict):
    """The next chunk of a log that the page subscribes to."""

    kind: Literal["log"]
    part: LogPart


class ProblemMessage(TypedDict):
    """An error in a request over the stream."""

    kind: Literal["problem"]
    problem: Problem


class Beat(TypedDict):
    """Sent every 15 seconds to show that the connection works; after 45 silent seconds, the page reconnects."""

    kind: Literal["beat"]
    time: float


Message: TypeAlias = ClustersMessage | ResourcesMessage | RunsMessage | RunMessage | LogMessage | ProblemMessage | Beat
