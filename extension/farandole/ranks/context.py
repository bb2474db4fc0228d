"""Who and where this rank is, read from the environment that the driver sets before a world starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from farandole.exceptions import UsageError

if TYPE_CHECKING:
    import torch

BACKENDS = ("horovod", "torch", "none")


def rank() -> int:
    """Return this rank's number, 0 to ``size() - 1``; 0 without a cluster."""
    return _number("FARANDOLE_RANK", default=0)


def size() -> int:
    """Return how many ranks the world has; 1 without a cluster."""
    return _number("FARANDOLE_SIZE", default=1)


def outside() -> bool:
    """Return True on a rank that was added to an elastic run and does not belong to its world yet."""
    return os.environ.get("FARANDOLE_OUTSIDE", "") == "1"


def local_rank() -> int:
    """Return this rank's number among those of its worker; 0 without a cluster."""
    return _number("FARANDOLE_LOCAL_RANK", default=0)


def local_size() -> int:
    """Return how many ranks this rank's worker has; 1 without a cluster."""
    return _number("FARANDOLE_LOCAL_SIZE", default=1)


def machine_size() -> int:
    """Return how many ranks the machine has, those in other containers on it included; 1 without a cluster."""
    return _number("FARANDOLE_MACHINE_SIZE", default=local_size())


def backend() -> str:
    """Return ``horovod``, ``torch``, or ``none`` without a cluster."""
    name = os.environ.get("FARANDOLE_BACKEND", "none")
    if name not in BACKENDS:
        raise UsageError(f"FARANDOLE_BACKEND is {name!r}; it must be one of {', '.join(BACKENDS)}.")
    return name


def worker() -> str:
    """Return the name of the worker that this rank lives on; empty without a cluster."""
    return os.environ.get("FARANDOLE_WORKER", "")


def cluster() -> str:
    """Return the name of the cluster; empty without one."""
    return os.environ.get("FARANDOLE_CLUSTER", "")


def device() -> torch.device:
    """Return this rank's own GPU where the worker has any, else the CPU."""
    import torch

    count = torch.cuda.device_count()
    return torch.device("cuda", local_rank() % count) if count else torch.device("cpu")


def _number(variable: str, *, default: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError as exc:
        raise UsageError(f"The environment variable {variable} is {text!r}; it must be a whole number.") from exc
