"""Computes a rank's share of the machine's CPU cores."""

from __future__ import annotations

import os
from pathlib import Path

from farandole.ranks import context
from farandole.ranks.preflight.machine import CGROUPS, OWN_CGROUPS, own_cgroups


def share_cores() -> dict[str, str]:
    """Set torch's number of threads to this rank's share of the cores, unless OMP_NUM_THREADS is set.

    If each rank had one thread per core, the threads would compete for the cores while they busy-wait for each other.
    Small steps would become many times slower.

    Returns:
        dict[str, str]: the environment variable with this number, for libraries that set torch's threads themselves,
            such as Accelerate, and for processes that the rank starts.
    """
    import torch

    if "OMP_NUM_THREADS" in os.environ:
        return {}
    torch.set_num_threads(threads())
    return {"OMP_NUM_THREADS": str(threads())}


def threads(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return the number of threads for this rank, so that all ranks on the machine together use each core once.

    - A container sees all cores of its machine, so all ranks on the machine share these cores.
    - The ranks in one container also share the container's CPU limit.
    """
    limits = [float(len(os.sched_getaffinity(0))), *cpu_limits(cgroups, own)]
    return max(1, int(min(min(limits) / context.local_size(), (os.cpu_count() or 1) / context.machine_size())))


def cpu_limits(cgroups: Path, own: Path) -> list[float]:
    """Return the CPU limits of this process's cgroups, in cores. Cgroups without a limit are omitted.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max) and scheduler/sched-bwc.rst.
    """
    found = []
    for folder, version in own_cgroups("cpu", cgroups, own):
        try:
            if version == 2:
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            limit = int(quota) / int(period)
        except (OSError, ValueError):  # the file is missing or contains the word "max"
            continue
        if limit > 0:  # in version 1, -1 means no limit
            found.append(limit)
    return found
