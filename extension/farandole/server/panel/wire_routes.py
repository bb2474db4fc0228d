"""Types of the JSON bodies and responses of the routes; `wire` has the types that the stream of messages uses too."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypedDict

from farandole.server.panel.wire import Cluster, Problem, RunSummary, RunView, Series
from farandole.server.panel.wire_hub import Endpoint, Hub, Resources

ConfigValue: TypeAlias = str | float | bool | None
EntryKind: TypeAlias = Literal["file", "folder", "link", "other"]
Now: TypeAlias = Literal["missing", "same", "newer", "different"]


class RunPage(TypedDict):
    """Response to ``GET runs``, with a page of the runs that match a filter, newest first, and their total number."""

    runs: list[RunSummary]
    offset: int
    total: int


class State(TypedDict):
    """Response to ``GET state``, with the same content as the first messages of the stream; ``hub`` may be null."""

    hub: Hub | None
    resources: Resources
    clusters: list[Cluster]
    endpoints: list[Endpoint]
    runs: RunPage


class StartCluster(TypedDict):
    """Body of ``POST clusters``. A null value selects the hub's default."""

    name: str
    workers: int
    profile: str | None
    ranks: int | None
    backend: str | None
    wait: bool


class ScaleCluster(TypedDict):
    """Body of ``PATCH clusters/NAME``."""

    workers: int


class RunDetail(TypedDict):
    """Response to ``GET runs/ID``. ``sampled`` is true if the view was made from only a sample of the run's reports.

    ``tensorboard`` is true if the run has event files and the server has the TensorBoard viewer.
    """

    summary: RunSummary
    tags: list[str]
    notes: str
    view: RunView
    sampled: bool
    code: str
    config: dict[str, ConfigValue]
    options: dict[str, Any]
    versions: dict[str, str]
    results: dict[str, Any]
    folder: str
    tensorboard: bool


class RunSeries(TypedDict):
    """Response to ``GET runs/ID/series``."""

    id: str
    sampled: bool
    series: list[Series]


class RunRow(RunSummary):
    """A row in the table of runs. ``bytes`` is the disk use of the run's folder, or null if it is not known yet.

    ``values`` are those of the table's ``columns``, or none in the response to a change. A hyper-parameter that is None
    is the text None, and null means no value. Long texts end with an ellipsis, as does a list with more tags.
    """

    values: list[ConfigValue]
    tags: list[str]
    notes: str
    bytes: int | None


class RunTable(TypedDict):
    """A part of the table of runs. ``series``, ``config`` and ``tags`` are the names that occur in all of the table.

    ``defaults`` are ``series.NAME.last``, ``.lowest`` and ``.highest`` of the four series that most runs have, and
    ``config.NAME`` of the eight hyper-parameters that most runs have. ``columns`` are these and those that the request
    adds.

    While the server still reads values of runs, ``complete`` is false: runs whose value is unknown are sorted last,
    series and disk use may be missing from the rows, and names may be missing. The page then asks again.
    """

    runs: list[RunRow]
    offset: int
    total: int
    complete: bool
    columns: list[str]
    defaults: list[str]
    series: list[str]
    config: list[str]
    tags: list[str]


class RunTexts(TypedDict):
    """What a user writes about a run. Null leaves a value as it is; an empty name restores the original."""

    name: str | None
    tags: list[str] | None
    notes: str | None


class RunEdit(RunTexts):
    """A change to what a user writes about a run. The answer is 409, ``changed``, if a value is not that in ``before``.

    Null in ``before`` changes a value whatever it is.
    """

    before: RunTexts | None


class RunUsage(TypedDict):
    """Response to ``GET runs/ID/usage``. The x values of the series are seconds since the start of the run.

    The series are ``cpu`` (in percent of one core), ``memory``, ``gpu`` (in percent), ``gpu_memory``, and ``received``
    and ``sent`` (the network traffic of the ranks' machines, in bytes per second). ``notices`` names unreadable files.
    """

    id: str
    notices: list[str]
    series: list[Series]


class LogMatch(TypedDict):
    """A line of a rank's output. ``offset`` is in bytes from the start of the rank's log, ``time`` null if unknown."""

    rank: int
    line: int
    offset: int
    time: float | None
    text: str


class LogMatches(TypedDict):
    """The lines that match a search, in the order of ranks and lines. ``complete`` is false if there are more."""

    id: str
    matches: list[LogMatch]
    complete: bool


class Template(TypedDict):
    """A notebook to start from. ``name`` is the name of its file without the extension."""

    name: str
    title: str
    description: str


class Templates(TypedDict):
    """Response to ``GET templates``."""

    templates: list[Template]


class CreateNotebook(TypedDict):
    """A request for a notebook from a template. ``folder`` is relative to the server's root; empty for the root."""

    folder: str


class CreatedNotebook(TypedDict):
    """Response to ``POST templates/NAME``. ``path`` is relative to the server's root."""

    path: str


class EndpointRequest(TypedDict):
    """Response to ``GET endpoints/NAME/example``, and body of ``POST endpoints/NAME/infer``.

    ``request`` is JSON of the Open Inference Protocol. Null stands for an example that is too large for a page.
    """

    request: str | None


class EndpointAnswer(TypedDict):
    """Response to ``POST endpoints/NAME/infer``.

    ``answer`` is JSON of the Open Inference Protocol, and only its beginning if ``complete`` is false. ``seconds`` is
    the time from the notebook server through the hub's proxy to the endpoint and back.
    """

    answer: str
    complete: bool
    seconds: float


class Snapshot(TypedDict):
    """A snapshot of the home. ``message`` is the user's, or empty."""

    id: str
    time: float
    message: str


class SnapshotPage(TypedDict):
    """Response to ``GET snapshots``, newest first. ``taking`` is the job that takes one at the moment, or null.

    ``problem`` says why no automatic snapshot has been taken since the newest one, or is null.
    """

    snapshots: list[Snapshot]
    offset: int
    total: int
    taking: str | None
    problem: str | None


class SnapshotChanges(TypedDict):
    """Response to ``GET snapshots/ID/changes``: how many files differ from the snapshot before, and the bytes added.

    Both are null for the oldest snapshot.
    """

    id: str
    files: int | None
    added: int | None


class SnapshotEntry(TypedDict):
    """A file or folder in a folder of a snapshot.

    - ``now`` says how what is at its path in the home differs from it, by size and time of change. ``newer`` was
      changed later. A folder that exists is the ``same``, and so is a file that is not ``restorable``.
    - ``restorable`` is false for a name that is not UTF-8, which a page cannot send.
    """

    name: str
    kind: EntryKind
    size: int
    modified: float
    now: Now
    restorable: bool


class SnapshotFolder(TypedDict):
    """Response to ``GET snapshots/ID/files``: a page of a folder, folders first. ``path`` is empty for the home."""

    id: str
    path: str
    entries: list[SnapshotEntry]
    offset: int
    total: int


class SnapshotVersion(Snapshot):
    """A file or folder in a snapshot. ``changed`` says whether it differs from the one in the snapshot before."""

    kind: EntryKind
    size: int
    modified: float
    changed: bool
    now: Now


class SnapshotVersions(TypedDict):
    """Response to ``GET snapshots/versions``, newest first. Of ``total``, only the newest are sent."""

    path: str
    versions: list[SnapshotVersion]
    total: int


class TakeSnapshot(TypedDict):
    """Body of ``POST snapshots``. The message may be empty."""

    message: str


class RestoreFile(TypedDict):
    """Body of ``POST snapshots/ID/restore``: a path in the home, and the folder to restore it to; null for its place.

    If the target exists, the answer is 409, ``exists``, unless ``keep_both`` asks for a name with the snapshot's time.
    """

    path: str
    to: str | None
    keep_both: bool


class SnapshotJob(TypedDict):
    """A snapshot that is taken, or a file that is restored, to ``path``. The page asks again until it is ``done``.

    ``notices`` are for the user. ``problem`` says why it has failed.
    """

    id: str
    done: bool
    path: str | None
    notices: list[str]
    problem: Problem | None
