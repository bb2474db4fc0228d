"""Types of the JSON messages between the notebook server and the panel's page.

All keys are always present; null means unknown or not applicable. Times are in seconds since the epoch, sizes in bytes.
``tests/wire`` contains an example of each type, which both the Python and the TypeScript tests use.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from farandole.server.panel.wire_hub import Endpoint, Hub, Resources

WorkerState: TypeAlias = Literal["starting", "ready", "stopping"]
ClusterState: TypeAlias = Literal["starting", "ready", "stopping", "failed"]
RunStatus: TypeAlias = Literal["running", "finished", "failed", "interrupted", "lost"]
RankState: TypeAlias = Literal["running", "done", "failed", "stopped", "dead"]
ProblemCode: TypeAlias = Literal[
    "invalid", "unknown", "no_hub", "refused", "quota", "exists", "runs_go_on", "changed", "unreachable", "failed"
]
Numbers: TypeAlias = list[float | None]


class GpuUsage(TypedDict):
    """A GPU that a worker can use, with values from ``nvidia-smi``."""

    index: int
    percent: float | None
    memory: int | None
    memory_total: int | None


class Usage(TypedDict):
    """Resource usage of a worker and its ranks.

    ``cpu`` is in percent of one core, and ``cpus`` is the number of available cores. ``received`` and ``sent`` are the
    network traffic of the container or machine in bytes per second. Rates are null until there are two samples.
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
    """A rank, with its state as reported by the cluster's driver."""

    rank: int
    alive: bool


class DaskWorker(TypedDict):
    """The tasks and the results of Dask on the ranks of a worker.

    - ``done`` counts the tasks since the start of Dask. ``waiting`` tasks are assigned to the worker.
    - ``memory`` and ``spilled`` are the bytes of results in memory and on disk.
    - While the worker is ``paused``, it begins no task: too little ``memory`` is left, or a ``training`` cell runs. For
      training, ``running`` is 0, although tasks that have begun continue.
    """

    running: int
    waiting: int
    done: int
    memory: int
    memory_limit: int
    spilled: int
    paused: Literal["memory", "training"] | None


class Worker(TypedDict):
    """A worker of a cluster.

    During a start, ``percent``, ``message`` and ``queue`` (the position in the queue for GPUs) are from the hub's last
    progress event. ``slots`` is the maximum number of ranks, and ``ranks`` is empty if the cluster has no driver. The
    hub stops a worker that is not ``busy`` at the time ``idle_until``; tasks of Dask keep a worker ``busy``. ``url`` is
    a path on the hub. ``dask`` is null while Dask does not run on its ranks.
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
    dask: DaskWorker | None


class Lead(TypedDict):
    """The kernel that leads a cluster. ``notebook`` is the path of the kernel's notebook, or empty if unknown."""

    notebook: str
    kernel: str
    host: str
    busy: bool


class DaskProgress(TypedDict):
    """How many of Dask's ``tasks`` on a cluster are ``done`` or have ``failed``.

    If new tasks come after all others have ended, only the new ones count.
    """

    tasks: int
    done: int
    failed: int


class Cluster(TypedDict):
    """A cluster. If the start fails, the cluster is listed with the reason in ``error`` until the user dismisses it.

    ``wanted`` is the requested number of workers until the cluster has that many. ``notice`` is a message about a delay
    or dead ranks. ``local`` is true if the cluster has no hub and ends with the kernel that leads it. ``size`` is the
    number of ranks, and ``runs`` contains the ids of the active runs. ``dask`` is null while Dask does not run.
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
    dask: DaskProgress | None
    runs: list[str]


class RunBasics(TypedDict):
    """The fields of a run that `RunSummary` and `RunView` have in common."""

    id: str
    name: str
    status: RunStatus
    error: str | None
    backend: str
    size: int


class RunSummary(RunBasics):
    """A run in the list.

    ``goes_on`` is true while ranks execute the run. Without a driver, the status is ``lost`` until a notebook attaches.
    ``notebook``, ``kernel`` and ``cell`` identify where the run was started, and are empty if not recorded.
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
    """The points of one rank in a series."""

    x: Numbers
    mean: Numbers


class Series(TypedDict):
    """The mean, minimum and maximum of a metric over the ranks.

    A series has at most 600 points, and the line of one rank has at most 300. ``bad`` counts NaN and infinite values,
    and ``bad_x`` contains their positions. ``last`` is the mean over the ranks of their last values; ``lowest`` and
    ``highest`` are the extremes of all values of all ranks. ``time`` (in seconds since the start of the run) and
    ``epoch`` (if ``x`` is the step) have one value per point, or none if they are unknown. ``ranks`` is null unless
    requested.
    """

    name: str
    x_label: str
    bad: int
    bad_x: Numbers
    last: float | None
    lowest: float | None
    highest: float | None
    x: Numbers
    mean: Numbers
    low: Numbers
    high: Numbers
    time: Numbers
    epoch: Numbers
    ranks: dict[str, RankLine] | None


class Bar(TypedDict):
    """The progress of a loop, such as the loop over epochs."""

    name: str
    done: float | None
    total: float | None
    seconds_left: float | None


class ModelMemory(TypedDict):
    """The bytes of a model on a rank: of its shares, and of the peak of what is used beside them.

    ``step_sent`` is how many bytes the rank sends in a step. Values that are not known are null.
    """

    parameters: int | None
    gradients: int | None
    optimizer: int | None
    activations: int | None
    step_sent: int | None


class RankRow(TypedDict):
    """A rank of a run with its resource usage, speed and last lines of output. ``cpu`` is in percent of one core."""

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
    model: ModelMemory | None
    log: list[str]


class SyncView(TypedDict):
    """The costs of a mode of `fd.sync`. ``waiting`` is the largest known share of a rank's time; bytes are a mean."""

    mode: str
    waiting: float | None
    bytes_per_step: int
    staleness: int


class RunView(RunBasics):
    """The view of a run, which the notebook's dashboard shows as well. If ``ended`` is true, no updates will follow.

    ``seconds_left`` estimates how long the whole run still takes. It is null unless loops are nested. ``reports`` and
    ``output_bytes`` count what the driver has received, so that a page sees whether anything has arrived. ``warnings``
    contains those notices that report a loss, a hang or a failure.
    """

    ended: bool
    notices: list[str]
    warnings: list[str]
    elapsed: float
    seconds_left: float | None
    progress: list[Bar]
    samples_per_second: float | None
    reports: int
    output_bytes: int
    sync: SyncView | None
    series: list[Series]
    ranks: list[RankRow]


class LogRequest(TypedDict):
    """A subscription to the log of a rank or a worker. A negative ``offset`` counts from the end of the log."""

    run: str | None
    rank: int | None
    worker: str | None
    offset: int


class LogPart(LogRequest):
    """The bytes of a log from ``offset`` to ``next``. ``size`` includes deleted bytes at the beginning of the log."""

    next: int
    size: int
    text: str


class Problem(TypedDict):
    """The reason why a request is refused. ``message`` is for the user; ``runs`` are runs that it would stop."""

    code: ProblemCode
    message: str
    runs: list[str]


class Watch(TypedDict):
    """The current subscriptions of a page. The server polls more often while the page shows the panel (``seen``).

    The server sends the views of ``runs``, and only the news of the runs in ``followed``.
    """

    kind: Literal["watch"]
    seen: bool
    runs: list[str]
    followed: list[str]
    by_rank: bool
    logs: list[LogRequest]


class ClustersMessage(TypedDict):
    """The current states of the hub and of all clusters."""

    kind: Literal["clusters"]
    hub: Hub | None
    clusters: list[Cluster]


class EndpointsMessage(TypedDict):
    """The current state of all endpoints."""

    kind: Literal["endpoints"]
    endpoints: list[Endpoint]


class ResourcesMessage(TypedDict):
    """The resources that are currently available for clusters."""

    kind: Literal["resources"]
    resources: Resources


class RunsMessage(TypedDict):
    """The newest runs and all active runs, and the total number of runs."""

    kind: Literal["runs"]
    runs: list[RunSummary]
    total: int


class RunMessage(TypedDict):
    """The current state of a run to which the page has subscribed."""

    kind: Literal["run"]
    id: str
    summary: RunSummary
    view: RunView
    sampled: bool


class FollowedMessage(TypedDict):
    """News of a run that the page follows without showing it.

    ``activity`` changes with each report, progress message and output. ``bad`` counts the NaN and infinite values of
    each series that has any.
    """

    kind: Literal["followed"]
    id: str
    summary: RunSummary
    activity: str
    bad: dict[str, int]


class LogMessage(TypedDict):
    """The next chunk of a log to which the page has subscribed."""

    kind: Literal["log"]
    part: LogPart


class ProblemMessage(TypedDict):
    """The reason why a request over the stream has failed."""

    kind: Literal["problem"]
    problem: Problem


class Beat(TypedDict):
    """A heartbeat, sent every 15 seconds. The page reconnects if it receives no message for 45 seconds."""

    kind: Literal["beat"]
    time: float


RunNews: TypeAlias = RunMessage | FollowedMessage
Message: TypeAlias = (
    ClustersMessage | EndpointsMessage | ResourcesMessage | RunsMessage | RunNews | LogMessage | ProblemMessage | Beat
)
