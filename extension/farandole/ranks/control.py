"""What the driver calls on a rank, always as one expression that leaves the user's namespace alone."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from contextlib import suppress
from typing import Any

from farandole.ranks import context, run
from farandole.ranks.kernel import interrupts, lean, transfer
from farandole.ranks.metrics import reporter
from farandole.ranks.preflight import links
from farandole.ranks.preflight import probe as preflight
from farandole.ranks.world import membership, world


def prepare(environment: dict[str, str]) -> None:
    """Make this kernel a rank: set its environment, connect it to the driver."""
    os.environ.update(environment)
    reporter.install()
    transfer.install()
    lean.make_lean()
    interrupts.install()


def preload(backend: str) -> dict[str, str]:
    """Import what the backend needs, so that forming the world is quick, and what the first optimizer step imports.

    Return the versions that matter to a run.

    That one cannot be imported twice, so an interrupt in the middle of it would leave the rank broken. A thread of its
    own is no way round: interrupts of cells that wait for its import locks can leave those taken for ever.
    """
    if backend != "none":
        import torch._dynamo  # noqa: F401
    if backend == "horovod":
        import horovod.torch  # noqa: F401
    versions = {"python": platform.python_version()}
    for package in ("torch", "horovod", "farandole", "numpy"):
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def form(environment: dict[str, str]) -> None:
    """Leave the world this rank may be in and join the one that the environment describes."""
    membership.form_world(environment)


def leave() -> None:
    """Leave the world; a rank that blocks in a collective is released."""
    membership.leave_world()


def abandon() -> None:
    """Leave a world that is broken, and let all go that wait for this rank."""
    membership.abandon_world()


def open_store(host: str) -> int:
    """Open the torch backend's store here, at `host` or everywhere where it is empty; return its port."""
    return world.open_store(host)


def begin(run_id: str, folder: str = "", resume: str = "", lr_rule: str = "") -> None:
    """Attribute what this rank reports from now on to a run; its folder, and that of the run it goes on from.

    With an ``lr_rule`` the run is elastic.
    """
    reporter.current().begin(run_id)
    run.current().begin(folder, resume)
    if lr_rule:
        membership.current().begin(lr_rule)


def end() -> None:
    """Finish what the run began, send all that belongs to it and leave it."""
    try:
        membership.current().end()
        run.current().end()
    finally:
        reporter.current().end()


def mark_world_broken(interrupted: bool = False) -> None:
    """Say that the world is broken, and whether an interrupt that comes now is the driver's."""
    membership.current().mark_world_broken(interrupted=interrupted)


def pause_at_next_commit() -> int:
    """Have the next commit wait until it is known where the ranks part; return how many there were."""
    return membership.current().pause_at_next_commit()


def leave_at_commit(commits: int) -> None:
    """Have this rank part from the others at that commit."""
    membership.current().leave_at_commit(commits)


def join(environment: dict[str, str]) -> None:
    """Have this rank, which waits, form a world."""
    membership.current().form(environment)


def waits() -> bool:
    """Return whether this rank waits to be told a world: one that was told, and is still forming it, does not."""
    return membership.current().waits


def identity() -> dict[str, Any]:
    """Return who this rank thinks it is, its process id, and whether it waits to join an elastic run's world."""
    return {
        "rank": context.rank(),
        "size": context.size(),
        "backend": context.backend(),
        "pid": os.getpid(),
        "outside": context.outside(),
    }


def describe() -> dict[str, Any]:
    """Return what this rank has to work with."""
    return preflight.describe()


def clock() -> float:
    """Return this rank's clock in seconds since the epoch."""
    return time.time()


def all_reduce() -> list[float]:
    """Sum over the world a few times and return the seconds of each."""
    return preflight.all_reduce()


def open_listener(host: str) -> dict[str, Any]:
    """Listen at `host` for a peer that measures the network; return the port, or an error."""
    return links.open_listener(host)


def serve(seconds: float) -> dict[str, Any]:
    """Answer that peer."""
    return links.serve(seconds)


def dial(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Measure the network to a rank that listens."""
    return links.dial(host, port, seconds)


def accept(key: str) -> None:
    """Put pushed values into the user's namespace."""
    transfer.accept(key)


def accept_broadcast(key: str) -> None:
    """Get pushed values from rank 0 over the backend and put them into the user's namespace."""
    transfer.accept_broadcast(key)


def give(names: list[str]) -> None:
    """Send variables of the user's namespace to the driver."""
    transfer.give(names)
