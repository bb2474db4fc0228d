"""The memory of a rank for Dask: how much there is, and how what tasks have freed gets back to the system."""

from __future__ import annotations

import ctypes
import os
import sys

from farandole.ranks import context
from farandole.ranks.preflight.machine import memory

RESERVED = 200 * 2**20
"""The memory in bytes that the Jupyter server of a worker needs. A quarter of the worker's memory is the most."""


def memory_limit() -> int:
    """Return this rank's share of the memory in bytes: of its worker's limit, or of the machine."""
    import psutil

    _, total = memory()
    # The hub sets this variable to the limit of the profile, also where no container enforces it.
    limit = min(total, int(os.environ.get("MEM_LIMIT") or total))
    limit -= min(RESERVED, limit // 4)
    return min(limit // context.local_size(), psutil.virtual_memory().total // context.machine_size())


def release_free_memory() -> None:
    """Return memory that no object uses to the system.

    The allocators of C and of Arrow keep such memory, and Dask counts it as used. Source: Dask, "Manually trim memory",
    https://distributed.dask.org/en/stable/worker-memory.html.
    """
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:  # only the GNU C library has it
        trim(0)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
