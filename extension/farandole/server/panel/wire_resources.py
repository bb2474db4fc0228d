"""Types of the messages about profiles, GPUs and limits, in the manner of `wire`."""

from __future__ import annotations

from typing import TypedDict


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


class Resources(TypedDict):
    """The profiles, GPUs, limits and backends that are available for clusters."""

    profiles: list[Profile]
    gpus: list[GpuClass]
    quota: Quota
    backends: list[str]
