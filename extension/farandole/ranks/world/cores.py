"""A rank's share of the machine's CPU cores."""

from __future__ import annotations

import os
from pathlib import Path

from farandole.ranks import context
from farandole.ranks.preflight.machine import CGROUPS, OWN_CGROUPS, own_cgroups


def share_cores() -> None:
    """Set torch's number of threads to this rank's share of the cores, unless OMP_NUM_THREADS is set.

    With one thread per core in each rank, threads wait for each other busily and small steps become many times slower.
    """
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads())


def threads(cgroups: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Return this rank's number of threads such that all ranks of the machine together use each core once.

    - Containers see all cores of their machine, so all ranks of the machine share these.
    - The ranks of one container also share the container's CPU limit.
    """
    limits = [float(len(os.sched_getaffinity(0))), *cpu_limits(cgroups, own)]
    return max(1, int(min(min(limits) / context.local_size(), (os.cpu_count() or 1) / context.machine_size())))


def cpu_limits(cgroups: Path, own: Path) -> list[float]:
    """Return the CPU limit, in cores, of each cgroup of this process that has one.

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
        except (OSError, ValueError):  # missing, or the word "max"
            continue
        if limit > 0:  # version 1 uses -1 for no limit
            found.append(limit)
    return found
