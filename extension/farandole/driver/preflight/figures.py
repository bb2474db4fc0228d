"""Dataclasses for the measurements of a check."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Room:
    """The free and the total size of a disk, or of the memory of a machine or GPU, in bytes."""

    free: int
    total: int

    @property
    def share(self) -> float:
        """The share that is free, between 0 and 1."""
        return self.free / self.total if self.total else 1.0


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU, as reported by its driver. Values that the driver does not report are None."""

    uuid: str
    name: str
    driver: str
    celsius: int | None
    ecc_errors: int | None
    slowed_by: tuple[str, ...]
    memory: Room


@dataclass(frozen=True, kw_only=True)
class RankFigures:
    """The measurements of one rank and its machine.

    - ``load`` is the host's load average over one minute.
    - ``skew`` is how many seconds the rank's clock is ahead of the driver's clock, and ``skew_error`` is the
      uncertainty.
    - ``gpu_own`` is how many bytes of memory the rank's process uses on its GPUs.
    """

    rank: int
    worker: str
    host: str
    address: str
    versions: Mapping[str, str]
    memory: Room
    disks: Mapping[str, Room]
    load: float
    cpus: int
    skew: float
    skew_error: float
    gpus: tuple[Gpu, ...] = ()
    gpu_own: int = 0
    gpu_error: str = ""

    @property
    def name(self) -> str:
        """The rank and its worker, as named in messages."""
        return f"rank {self.rank} (worker {self.worker})"


@dataclass(frozen=True, kw_only=True)
class DriverFigures:
    """The host of the driver and the versions of its packages.

    ``outside`` is true for a driver that no server of the workers' hub runs, such as a laptop's.
    """

    host: str
    versions: Mapping[str, str]
    outside: bool = False


def driver_figures(*, outside: bool = False) -> DriverFigures:
    """Return the figures of this process. Packages that are not installed have the version ``none``."""
    versions = {"python": platform.python_version()}
    for package in ("torch", "farandole"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "none"
    return DriverFigures(host=socket.gethostname(), versions=versions, outside=outside)


@dataclass(frozen=True, kw_only=True)
class Link:
    """The network link between two ranks.

    - ``latency`` is the time of a round trip in seconds, and ``bandwidth`` the rate of the slower direction in bytes/s.
      Both are None if the measurement failed, and ``error`` contains the reason.
    - ``local`` links connect ranks of the same node. They are compared only with each other.
    """

    first: int
    second: int
    local: bool
    latency: float | None = None
    bandwidth: float | None = None
    error: str = ""


def rank_figures(
    answer: Mapping[str, Any], *, rank: int, worker: str, address: str, skew: float, skew_error: float
) -> RankFigures:
    """Convert the answer of `farandole.ranks.preflight.probe.describe` on a rank to the rank's figures."""
    gpus = tuple(_gpu(**gpu) for gpu in answer["gpus"])
    drivers = sorted({gpu.driver for gpu in gpus})
    return RankFigures(
        rank=rank,
        worker=worker,
        host=answer["host"],
        address=address,
        versions=answer["versions"] | ({"driver": ", ".join(drivers)} if drivers else {}),
        memory=_room(answer["memory"]),
        disks={name: _room(pair) for name, pair in answer["disks"].items()},
        load=answer["load"],
        cpus=answer["cpus"],
        skew=skew,
        skew_error=skew_error,
        gpus=gpus,
        gpu_own=answer["own_bytes"],
        gpu_error=answer["error"],
    )


def _room(pair: list[int]) -> Room:
    return Room(free=pair[0], total=pair[1])


def _gpu(*, total_bytes: int, used_bytes: int, slowed_by: list[str], **described: Any) -> Gpu:
    memory = Room(free=total_bytes - used_bytes, total=total_bytes)
    return Gpu(memory=memory, slowed_by=tuple(slowed_by), **described)
