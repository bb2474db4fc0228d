"""The functions that the driver calls on a rank, as expressions that do not change the user's namespace."""

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
    """Make this kernel a rank: set its environment and connect it to the driver."""
    os.environ.update(environment)
    reporter.install()
    transfer.install()
    lean.make_lean()
    interrupts.install()


def preload(backend: str) -> dict[str, str]:
    """Import the backend, so that the world forms quickly; return the versions of the packages that a run records.

    Also imports torch._dynamo, which the first optimizer step would import. An interrupt in the middle of that import
    would break the rank, because it cannot be repeated. Importing it in a thread does not help: an interrupt of a cell
    that waits for the thread's import locks can leave these locked forever.
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
    """Leave the current world, if any, and join the one that ``environment`` describes."""
    membership.form_world(environment)


def leave() -> None:
    """Leave the world; unblocks a rank that waits in a collective."""
    membership.leave_world()


def abandon() -> None:
    """Leave a broken world, and unblock peers that wait for this rank."""
    membership.abandon_world()


def open_store(host: str) -> int:
    """Open the torch backend's store on this rank, at ``host`` or on all addresses if empty; return its port."""
    return world.open_store(host)


def begin(run_id: str, folder: str = "", resume: str = "", lr_rule: str = "") -> None:
    """Begin a run: its id, its folder, and the folder of the run to resume from.

    The run is elastic if ``lr_rule`` is not empty.
    """
    reporter.current().begin(run_id)
    run.current().begin(folder, resume)
    if lr_rule:
        membership.current().begin(lr_rule)


def end() -> None:
    """Call the run's exit callbacks, send its queued messages and leave it."""
    try:
        membership.current().end()
        run.current().end()
    finally:
        reporter.current().end()


def mark_world_broken(interrupted: bool = False) -> None:
    """Note that the world is broken, and whether the next interrupt comes from the driver."""
    membership.current().mark_world_broken(interrupted=interrupted)


def pause_at_next_commit() -> int:
    """Make the next commit wait for `leave_at_commit`; return the number of commits so far."""
    return membership.current().pause_at_next_commit()


def leave_at_commit(commits: int) -> None:
    """Make this rank leave its loop at the commit with this number."""
    membership.current().leave_at_commit(commits)


def join(environment: dict[str, str]) -> None:
    """Let this rank, which waits for a world, form the one that ``environment`` describes."""
    membership.current().form(environment)


def waits() -> bool:
    """Return whether this rank waits for a world; a rank that is forming one does not wait."""
    return membership.current().waits


def identity() -> dict[str, Any]:
    """Return this rank's number, world size, backend and process id, and whether it is outside the world."""
    return {
        "rank": context.rank(),
        "size": context.size(),
        "backend": context.backend(),
        "pid": os.getpid(),
        "outside": context.outside(),
    }


def describe() -> dict[str, Any]:
    """Return the resources of this rank's machine and its GPUs."""
    return preflight.describe()


def clock() -> float:
    """Return this rank's clock in seconds since the epoch."""
    return time.time()


def all_reduce() -> list[float]:
    """Time a few all-reduces over the world; return the seconds of each."""
    return preflight.all_reduce()


def open_listener(host: str) -> dict[str, Any]:
    """Listen at ``host`` for a peer that measures the network; return the port, or an error."""
    return links.open_listener(host)


def serve(seconds: float) -> dict[str, Any]:
    """Serve the peer that connects to the listener; return the measured rate, or an error."""
    return links.serve(seconds)


def dial(host: str, port: int, seconds: float) -> dict[str, Any]:
    """Measure the network to a listening rank; return latency and rate, or an error."""
    return links.dial(host, port, seconds)


def accept(key: str) -> None:
    """Assign pushed values in the user's namespace."""
    transfer.accept(key)


def accept_broadcast(key: str) -> None:
    """Receive pushed values from rank 0 over the backend and assign them in the user's namespace."""
    transfer.accept_broadcast(key)


def give(names: list[str]) -> None:
    """Send variables of the user's namespace to the driver."""
    transfer.give(names)
