"""Rank, size and device of this process, from environment variables that the driver sets before a world forms."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from farandole.exceptions import UsageError

if TYPE_CHECKING:
    import torch

BACKENDS = ("horovod", "torch", "none")


def rank() -> int:
    """Return the number of this rank.

    Returns:
        int: from 0 to ``size() - 1``, and 0 outside a cluster.
    """
    return _number("FARANDOLE_RANK", default=0)


def size() -> int:
    """Return the number of ranks in the world.

    Returns:
        int: at least 1, and 1 outside a cluster. In an elastic run, the size changes when ranks are lost or added.
    """
    return _number("FARANDOLE_SIZE", default=1)


def outside() -> bool:
    """Return True on a rank that was added to an elastic run and has not joined the run's world yet."""
    return os.environ.get("FARANDOLE_OUTSIDE", "") == "1"


def local_rank() -> int:
    """Return the number of this rank among the ranks on the same worker.

    Returns:
        int: from 0 to ``local_size() - 1``, and 0 outside a cluster.
    """
    return _number("FARANDOLE_LOCAL_RANK", default=0)


def local_size() -> int:
    """Return the number of ranks on this rank's worker.

    Returns:
        int: at least 1, and 1 outside a cluster.
    """
    return _number("FARANDOLE_LOCAL_SIZE", default=1)


def machine_size() -> int:
    """Return the number of ranks on this machine, including those in other containers. It is 1 outside a cluster."""
    return _number("FARANDOLE_MACHINE_SIZE", default=local_size())


def backend() -> str:
    """Return ``horovod`` or ``torch``, or ``none`` if the ranks have no process group."""
    name = os.environ.get("FARANDOLE_BACKEND", "none")
    if name not in BACKENDS:
        raise UsageError(f"FARANDOLE_BACKEND is {name!r}; it must be one of {', '.join(BACKENDS)}.")
    return name


def worker() -> str:
    """Return the name of this rank's worker, or an empty string outside a cluster."""
    return os.environ.get("FARANDOLE_WORKER", "")


def cluster() -> str:
    """Return the name of the cluster, or an empty string outside a cluster."""
    return os.environ.get("FARANDOLE_CLUSTER", "")


def device() -> torch.device:
    """Return the device of this rank.

    Returns:
        torch.device: the GPU of this rank if its worker has GPUs, otherwise the CPU.
    """
    import torch

    count = torch.cuda.device_count()
    return torch.device("cuda", local_rank() % count) if count else torch.device("cpu")


def _number(variable: str, *, default: int) -> int:
    """Return the integer in an environment variable, or ``default`` if the variable is not set."""
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError as exc:
        raise UsageError(f"The environment variable {variable} is {text!r}; it must be a whole number.") from exc
