"""Types of what the hub has for the user: notices, profiles, GPUs, limits and endpoints. `wire` uses them."""

from __future__ import annotations

from typing import Literal, TypedDict


class HubNotice(TypedDict):
    """A message from an operator of the hub, or why ``servers`` were stopped. A notebook server's name is empty."""

    by: str
    time: float
    text: str
    servers: list[str]


class Hub(TypedDict):
    """The user on the hub, with notices, newest first. ``error`` says why the hub cannot be reached, null if it can."""

    user: str | None
    error: str | None
    notices: list[HubNotice]


class Profile(TypedDict):
    """A server profile set by the admin. ``gpus_free`` and ``gpus_total`` count the GPUs of the profile's class."""

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
    """A user, and how many GPUs of a class this user's servers hold."""

    user: str
    count: int


class GpuClass(TypedDict):
    """The hub's GPUs of one class. ``waiting`` is the number of servers in the queue for these GPUs."""

    name: str
    total: int
    free: int
    waiting: int
    held: list[Holder]


class Quota(TypedDict):
    """The user's current number of workers, and the user's limits. A limit is null if the hub does not set it."""

    workers: int
    workers_max: int | None
    ranks_per_worker_max: int | None


class Home(TypedDict):
    """The use of the user's home in bytes. ``used`` is null until it has been measured.

    ``free`` is how much the user may still write. ``warning`` says that the home is full or nearly full, and what takes
    most; it is null otherwise.
    """

    used: int | None
    limit: int
    free: int
    warning: str | None


class Resources(TypedDict):
    """The profiles, GPUs, limits and backends that are available for clusters.

    ``home`` is null if the hub sets no limit on the size of homes.
    """

    profiles: list[Profile]
    gpus: list[GpuClass]
    quota: Quota
    home: Home | None
    backends: list[str]


class EndpointStream(TypedDict):
    """The stream that an endpoint scores, from ``source`` to ``target``.

    - ``lag`` is the number of records that wait in the source, or null if it is not known.
    - ``records_per_second`` were scored in the last minute. ``dead_letters`` are the records since the start of the
      endpoint that the model could not score.
    - ``problem`` says why no record is scored at the moment, and is null otherwise.
    """

    source: str
    target: str
    lag: int | None
    records_per_second: float
    dead_letters: int
    problem: str | None


class Endpoint(TypedDict):
    """An endpoint, which runs ``command`` or serves ``model``. The other one is null.

    - ``image`` is the image that has the model, or null. Only the endpoint itself knows which model is in its image, so
      both ``model`` and ``command`` are null until it is ready, and while it does not answer.
    - ``url`` is for programs elsewhere. It is only a path if the hub does not know its public address.
    - ``requests_per_second``, ``errors`` and ``p95_ms`` (95 % of the requests took at most this many milliseconds) are
      those of the last minute. ``p95_ms`` is null if there was no request.
    - While a ready endpoint does not answer, these, ``version`` and ``stream`` are null, and always for a command.
    """

    name: str
    url: str
    model: str | None
    version: int | None
    command: str | None
    image: str | None
    state: Literal["starting", "ready", "stopping"]
    requests_per_second: float | None
    errors: int | None
    p95_ms: float | None
    stream: EndpointStream | None
